"""`python -m experiments.papers [NAME...]`: runs papers in their full setting, two at once, each in its own process.

Without a name all of them are run. What comes out goes to docs/papers.md as soon as it is there. Exit code 1 if it is
other than its file says. `--page` runs none and writes the page again, with the words that the files
have now. `--json NAME` is what such a process is started with: it prints what was measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console

from experiments.papers.frame.lab import lab
from experiments.papers.frame.page import line, names, overview, paper, record
from experiments.papers.frame.paper import Check, verdict_of

AT_ONCE = 2
WIDTH = 160
"""Columns of the table where there is no terminal."""


async def _measured(name: str, turns: asyncio.Semaphore) -> list[Check] | None:
    """What a process of its own found; None, and its error printed, if it did not end well."""
    async with turns:
        command = [sys.executable, "-m", "experiments.papers", "--json", name]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        found, _ = await process.communicate()
    if process.returncode:
        print(f"{name}: ended with {process.returncode}", flush=True)
        return None
    checks = [Check(**check) for check in json.loads(found)]
    print(line(name, checks), flush=True)
    record({name: checks})
    return checks


async def _all(chosen: Sequence[str]) -> dict[str, list[Check] | None]:
    turns = asyncio.Semaphore(AT_ONCE)
    found = await asyncio.gather(*(_measured(name, turns) for name in chosen))
    return dict(zip(chosen, found, strict=True))


def main(arguments: list[str]) -> int:
    """0 if everything came out as its file says."""
    if arguments[:1] == ["--json"]:
        with lab(full=True) as here:
            print(json.dumps([asdict(check) for check in paper(arguments[1]).measure(here)]))
        return 0
    if arguments == ["--page"]:
        record({})
        return 0
    unknown = sorted(set(arguments) - set(names()))
    if unknown:
        print(f"no such paper: {', '.join(unknown)}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    results = asyncio.run(_all(arguments or names()))
    found = {name: checks for name, checks in results.items() if checks is not None}
    surprises = [f"{name}: {text}" for name, checks in found.items() for text in paper(name).surprises(checks)]
    for text in surprises:
        print(f"other than its file says: {text}")
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(overview(found))
    verdicts = [verdict_of(checks) for checks in found.values()]
    print(", ".join(f"{verdicts.count(each)} {each}" for each in ("reproduced", "partly", "not reproduced")))
    return 1 if surprises or len(found) < len(results) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
