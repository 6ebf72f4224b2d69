"""Pages that compute: every number in their prose is computed on the page, and every folded answer has one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.levels import sample_of
from tests.support.root import ROOT
from tests.support.socket_runs import GUARD_S

DOCS = ROOT / "docs"
CONCEPTS = sorted((DOCS / "concepts").glob("*.md"))
PAGES = [page for page in CONCEPTS if page.name != "index.md"]
CELL = re.compile(
    r"^```\{code-cell\} ipython3\n(?:---\n.*?^---\n|(?::\w+:[^\n]*\n)*)(.*?)^```$", re.MULTILINE | re.DOTALL
)
QUESTION = re.compile(r"^```\{dropdown\} (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATED = re.compile(r"\{glue:text\}`([^`]+)`")


def computed_on(page: Path) -> list[str]:
    """Return a pattern for each name that the cells of *page* compute: `f"peak-{stage}"` stands for several."""
    cells = "\n".join(CELL.findall(page.read_text(encoding="utf-8")))
    names = re.findall(r"""computed\(\s*(f?)"([^"]+)",""", cells)
    return [
        re.sub(r"\\\{.*?\\\}", ".+", re.escape(name)) if formatted else re.escape(name) for formatted, name in names
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_number_of_a_page_is_computed_on_it(page: Path) -> None:
    stated = set(STATED.findall(page.read_text(encoding="utf-8")))
    patterns = computed_on(page)
    assert stated
    assert [name for name in stated if not any(re.fullmatch(pattern, name) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in stated)] == []
    assert len(patterns) == len(set(patterns))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_question_has_a_folded_answer_with_a_computed_number(page: Path) -> None:
    questions = QUESTION.findall(page.read_text(encoding="utf-8"))
    assert len(questions) >= 2
    for question, answer in questions:
        assert question.endswith("?"), question
        assert ":open:" not in answer, question
        assert STATED.search(answer), question


def test_the_index_lists_every_page_and_there_are_many_questions() -> None:
    index = (DOCS / "concepts" / "index.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"```\{toctree\}\n(?::\w+:\n)*\n(.*?)```", index, flags=re.DOTALL)
    assert sorted(listed.split()) == sorted(page.stem for page in PAGES)
    assert sorted(set(re.findall(r"\]\(([\w-]+)\.md\)", index))) == sorted(listed.split())
    assert sum(len(QUESTION.findall(page.read_text(encoding="utf-8"))) for page in PAGES) >= 45


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(["contention", "clock"], 2))
def test_the_cells_of_a_page_are_a_script_that_runs(name: str, tmp_path: Path) -> None:
    page = DOCS / "concepts" / f"{name}.md"
    script = tmp_path / "page.py"
    script.write_text("\n".join(CELL.findall(page.read_text(encoding="utf-8"))), encoding="utf-8")
    path = os.pathsep.join([str(ROOT), str(DOCS)])
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )
    assert done.returncode == 0, done.stderr
    printed = [line.split(": ")[0] for line in done.stdout.splitlines()]
    patterns = computed_on(page)
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, line) for line in printed)] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.py"], "a page writes nothing where it is"


def test_a_number_that_moved_or_is_not_what_the_text_says_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from support.computed import computed

    computed("step", 2.1528, expected=2.15, within=0.01, text="{:.3f} s")
    computed("step", 2.1528, expected=2.15, within=0.01, text="2,153 ms")  # another unit
    computed("tiny", 2.0**-24, expected=5.96e-8, within=1e-3, text="{:.1e}")
    computed("share", 0.25, expected=0.25, text="a quarter")
    assert capsys.readouterr().out == "step: 2.153 s\nstep: 2,153 ms\ntiny: 6.0e-08\nshare: a quarter\n"
    for value, text in ((2.2, "{:.1f} s"), (float("nan"), None), (2.1528, "2.16 s"), (2.1528, "3 s")):
        with pytest.raises(AssertionError, match="step"):
            computed("step", value, expected=2.15, within=0.01, text=text)
