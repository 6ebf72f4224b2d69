"""The results of all papers, as a table in a terminal and as docs/papers.md."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.box import ASCII2
from rich.markup import escape
from rich.table import Table

from experiments.papers.frame.paper import Check, Paper, verdict_of

FOLDER = Path(__file__).resolve().parent.parent.parent
PAGE = FOLDER.parent / "docs" / "papers.md"
SUBJECTS = ("papers/communication", "papers/gossip", "papers/inference", "papers/staleness", "seeds")
RESULTS = FOLDER / "papers" / "results.json"
"""What the full setting of each paper found when it was last run: what the page is made of."""

SHOWN = 1
"""The number of failing checks that the table shows of a result. Its section has all."""

_HEAD = """# Results of papers, reproduced

Published results, and claims of the systems that simcluster began with (`experiments/seeds/`), checked with this
simulator. Each is a file with the claim, the setting, and the reason if something did not reproduce. *Checks* counts
those that hold, and shows one that fails.

`python -m experiments.papers NAME` repeats one result and prints every check; `make papers` repeats all and writes this
page. The site, built by `make docs`, has a section for each, with every check.
"""
_DETAILS = """```{generated} papers
python -m experiments.papers NAME
```
"""


def files() -> dict[str, Path]:
    """Name of a paper -> its file below `experiments/`, in alphabetical order."""
    found = [path for subject in SUBJECTS for path in (FOLDER / subject).glob("*.py") if path.stem != "__init__"]
    return {path.stem: path.relative_to(FOLDER) for path in sorted(found, key=lambda path: path.stem)}


def names() -> list[str]:
    """All papers' names, in alphabetical order."""
    return list(files())


def paper(name: str) -> Paper:
    """The paper whose file is called *name*."""
    found: Paper = importlib.import_module(".".join(["experiments", *files()[name].with_suffix("").parts])).PAPER
    return found


def recorded() -> dict[str, list[Check]]:
    """Name -> what was found when the paper was last run in full; of papers that are still there."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    return {name: [Check(**check) for check in found[name]] for name in names() if name in found}


def record(results: Mapping[str, Sequence[Check]]) -> None:
    """Puts *results* in the place of what was found before, and writes the page."""
    now = dict(sorted({**recorded(), **results}.items()))
    rows = {name: [asdict(check) for check in checks] for name, checks in now.items()}
    RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(now), encoding="utf-8")


def page(results: Mapping[str, Sequence[Check]]) -> str:
    """The page of all papers in *results*: a line each, and the place of their `details`."""
    rows = [_row(name, paper(name), checks) for name, checks in results.items()]
    return "\n".join([_HEAD, _table(["result", "paper", "checks"], rows), _DETAILS])


def details() -> str:
    """The section of each paper that was recorded, for the site."""
    return "\n".join(_section(name, paper(name), checks) for name, checks in recorded().items())


def line(name: str, checks: Sequence[Check]) -> str:
    """One paper for the terminal: verdict, claim, and each check."""
    one = paper(name)
    rows = [
        f"    {'yes' if check.holds else 'NO '}  {check.name}: {check.ours} (expected {check.expected})"
        for check in checks
    ]
    return "\n".join([f"{name}: {verdict_of(checks)}", f"  {one.title}. {one.citation}", f"  {one.claim}", *rows])


def overview(results: Mapping[str, Sequence[Check]]) -> Table:
    """All papers in *results* for the terminal: claim, ours, verdict."""
    table = Table("paper", "claim", "ours", "verdict", show_lines=True, box=ASCII2)
    for name, checks in results.items():
        table.add_row(*map(escape, [name, paper(name).claim, _ours(checks), verdict_of(checks)]))
    return table


def _ours(checks: Sequence[Check]) -> str:
    shown = "; ".join(f"{check.name}: {check.ours}" for check in checks[:3])
    return f"{sum(check.holds for check in checks)} of {len(checks)} as expected; {shown}"


def _row(name: str, one: Paper, checks: Sequence[Check]) -> list[str]:
    title = f'<a id="{name}"></a>[{one.title}](../experiments/{files()[name]})'
    holding = f"{sum(check.holds for check in checks)} of {len(checks)}"
    failing = [f"{check.name}: {check.ours} (expected {check.expected})" for check in checks if not check.holds]
    shown = [*failing[:SHOWN], *([f"{len(failing) - SHOWN} more"] if len(failing) > SHOWN else [])]
    verdict = "" if not failing else f"{verdict_of(checks)}: "
    return [title, _authors(one.citation), verdict + "; ".join([holding, *shown])]


def _authors(citation: str) -> str:
    """Return the authors and the year of *citation*, of more than three authors the first only."""
    names, _, year = citation.split(". ")[0].rpartition(" ")
    first, *others = re.split(r", | and ", names)
    return f"{first} and others {year}" if len(others) > 2 else f"{names} {year}"


def _section(name: str, one: Paper, checks: Sequence[Check]) -> str:
    rows = [[check.name, check.expected, check.ours, "yes" if check.holds else "no"] for check in checks]
    said = [
        f'## <a id="{name}"></a>{one.title}\n',
        f"{one.citation}. `experiments/{files()[name]}`.\n",
        f"Claim: {one.claim}\n",
        f"Setting: {one.setting}\n",
        f"Expected: {one.expected}\n",
        _table(["what", "expected", "ours", "holds"], rows),
        *(f"Not reproduced, {check}: {why}\n" for check, why in one.missed.items()),
        f"Verdict: {verdict_of(checks)}.\n",
    ]
    return "\n".join(said)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
