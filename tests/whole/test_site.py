"""The site's structure, without building it: `make docs` builds it and checks every link."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.catalogue import catalogue
from tests.support.root import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def toctrees(text: str) -> Iterator[str]:
    """Yield the entries of the lists of pages in *text*."""
    for body in re.findall(r"```\{toctree\}\n(.*?)```", text, flags=re.DOTALL):
        yield from (line for line in body.splitlines() if line and not line.startswith(":"))


def test_every_page_is_in_one_list_of_pages() -> None:
    from support.sources import CHILDREN

    listed: list[Path] = []
    for page in pages():
        patterns = [CHILDREN[name]] if (name := f"docs/{page.relative_to(DOCS).with_suffix('')}") in CHILDREN else []
        for entry in [*toctrees(page.read_text(encoding="utf-8")), *patterns]:
            if "*" in entry:
                listed += page.parent.glob(f"{entry}.md")
            else:
                listed.append((page.parent / f"{entry}.md").resolve())
    assert len(listed) == len(set(listed)), "a page is in two lists"
    assert set(pages()) - set(listed) == {DOCS / "index.md"}


def test_every_number_that_a_page_shows_is_computed_on_it() -> None:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        shown = {name.split(":")[0] for name in re.findall(r"\{glue(?::text)?\}`([^`]+)`", text)}
        assert not shown or "file_format: mystnb" in text
        computed = re.findall(r"\b(?:computed|glue)\(\s*f?[\"']([^\"']+)", text)
        made = [re.sub(r"\\\{[^}]*\\\}", ".+", re.escape(name)) for name in computed]  # names in a loop
        assert [name for name in sorted(shown) if not any(re.fullmatch(one, name) for one in made)] == [], page


def test_pages_run_commands_that_exist() -> None:
    known = (DOCS / "reference.md").read_text(encoding="utf-8")
    for page in pages():
        for command in re.findall(r'terminal\(\s*"simcluster ([\w-]+)', page.read_text(encoding="utf-8")):
            assert f"- `simcluster {command}" in known


def test_the_reference_lists_the_commands_that_the_site_has_in_full() -> None:
    from support.sources import expand

    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- `(simcluster [\w ]+)`", page, re.M)
    whole = expand(page)
    assert sorted(listed) == sorted(re.findall(r"^## (simcluster [\w ]+)$", whole, re.M))
    assert "| `--key-file FILE` | Real nodes: the shared key; required off loopback. |" in whole


def test_a_row_of_a_paper_leads_to_its_section() -> None:
    from support.sources import expand

    whole = expand((DOCS / "papers.md").read_text(encoding="utf-8"))
    rows = re.findall(r"^\| \[.+?\]\(#(\w+)\) \|", whole, re.M)
    assert len(rows) > 20
    assert rows == re.findall(r'^## <a id="(\w+)"></a>', whole, re.M)


def test_a_table_of_measurements_is_in_its_page() -> None:
    from support.sources import expand

    named = [
        name
        for page in DOCS.glob("*.md")
        for name in re.findall(r"^\[[^\]]+\]\(tables/([\w-]+)\.csv\)$", page.read_text(encoding="utf-8"), re.M)
    ]
    assert sorted(named) == sorted(path.stem for path in (DOCS / "tables").iterdir())
    whole = expand((DOCS / "fidelity.md").read_text(encoding="utf-8"))
    assert len(re.findall(r"^\| star \| sync_ps \| 0.2 MB \| [\d.]+ \|", whole, re.M)) == 2
    assert "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |" in whole


def test_the_configuration_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    for name in ("PYTHONPATH", "IPYTHONDIR"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    settings = runpy.run_path(str(DOCS / "conf.py"))
    assert settings["release"] == simcluster.__version__
    assert (ROOT / f"{settings['root_doc']}.md").is_file()
    assert settings["nb_execution_mode"] == "force", "a build computes every number"
    assert not any("mathjax" in name for name in settings["extensions"]), "the site loads nothing from elsewhere"


@pytest.mark.slow
def test_the_generated_parts_have_every_name() -> None:
    from support.sources import expand

    text = {part: expand(f"# A\n\n```{{generated}} {part}\n```\n") for part in ("python", "algorithms", "workloads")}
    missing = [name for name in simcluster.__all__ if not re.search(rf"^`+{{py:\w+}} {name}\b", text["python"], re.M)]
    assert missing == []
    for kind in ("algorithms", "workloads"):
        assert re.findall(r"^### (\w+)$", text[kind], re.M) == sorted(catalogue(kind))
    assert "| `steps` |" in expand("```{generated} experiment\n```\n")
    assert "| `nodes` | a mapping of nodes by name, at least one | required |" in expand(
        "```{generated} topology\n```\n"
    )


def test_a_copy_has_the_numbers_and_no_directives() -> None:
    from support.plain import of_notebook, plain

    page = "---\nfile_format: mystnb\n---\n\n# Ring\n\n```{dropdown} Why?\n:open:\n\nIt takes {glue:text}`time`.\n```\n"
    assert plain(page, {"time": "'0.24 s'"}) == "# Ring\n\n**Why?**\n\nIt takes 0.24 s.\n"
    shown: Any = {"output_type": "stream", "name": "stdout", "text": "$ simcluster run quickstart\n"}
    cell = {"cell_type": "code", "source": "terminal()", "metadata": {"tags": ["remove-input"]}, "outputs": [shown]}
    assert of_notebook({"cells": [cell]}, {}) == "```text\n$ simcluster run quickstart\n```\n"
    folded: Any = {"cell_type": "code", "source": "x = 1", "metadata": {"tags": ["hide-input"]}, "outputs": []}
    assert of_notebook({"cells": [folded, {**folded, "source": "computed(x)"}]}, {}) == "```python\nx = 1\n```\n"
    links = "::::{grid} 1 2\n:::{grid-item-card}\n```{toctree}\n:caption: Learn\n\na/b\n```\n:::\n::::\n"
    assert plain(links) == "**Learn**\n\n- [a/b](a/b.md)\n"
    assert (
        plain("```{code-block} python\n:caption: a.py\n\nx = 1\n\n\ny = 2\n```\n")
        == "`a.py`:\n\n```python\nx = 1\n\n\ny = 2\n```\n"
    )


def test_a_copy_has_the_numbers_of_a_figure() -> None:
    from support.drawn import bars, lines
    from support.plain import of_notebook

    figure = lines("A step", {"ring": {2: 1.5, 4: 3.0}}, "ranks", "ms")
    assert repr(figure) == "Figure: A step, ms by ranks. ring: 2: 1.5; 4: 3"
    assert repr(bars("Arrival", {"n0": 3.0, "n1": 1.5}, "s")) == "Figure: Arrival, s. n0: 3; n1: 1.5"
    assert repr(bars("Step", {"chain": 1025.1, "ring": 999.4}, "ms")) == "Figure: Step, ms. chain: 1,025; ring: 999"
    shown = {"output_type": "display_data", "data": {"text/html": "<svg/>", "text/plain": repr(figure)}}
    cell = {"cell_type": "code", "source": "", "metadata": {"tags": ["remove-input"]}, "outputs": [shown]}
    assert of_notebook({"cells": [cell]}, {}) == f"{figure!r}\n"


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    from support.check import problems

    (tmp_path / "a.html").write_text('<h1 id="here"></h1><a href="b.html#there"></a><a href="#here"></a>')
    (tmp_path / "b.html").write_text('<h1 id="here"></h1><a href="a.html#here"></a><a href="c.html"></a>')
    (tmp_path / "a.md").write_text("[b](b.html) [c](c.md#here) `[d](d.md)` [e](https://example.org/e.md)\n")
    (tmp_path / "d.html").write_text('<script src="https://example.org/x.js"></script><a href="https://example.org">')
    assert sorted(problems(tmp_path)) == [
        "a.html: b.html#there: no such anchor",
        "a.md: c.md#here: no such file",
        "b.html: c.html: no such file",
        "d.html: loads https://example.org/x.js from elsewhere",
    ]


@pytest.mark.slow
def test_a_command_of_a_page_prints_what_the_page_expects(capsys: pytest.CaptureFixture[str]) -> None:
    from support import terminal

    folder = Path.cwd()
    try:
        terminal.terminal("simcluster --version", simcluster.__version__)
        assert capsys.readouterr().out.startswith("$ simcluster --version\n")
        error = (
            "error: t.yaml:5:3: nodes.c: found no route from c to all of a, b, expected links that connect all workers"
        )
        first, second = terminal._wrapped(f"{error}, through switches").splitlines()
        assert len(first) <= terminal.COLUMNS
        assert second == "  all workers, through switches"  # it does not look like another line of the command
        with pytest.raises(AssertionError, match="expected 'no such text' in"):
            terminal.terminal("simcluster --version", "no such text")
        with pytest.raises(AssertionError, match="exit code 2"):
            terminal.terminal("simcluster run no-such-experiment")
    finally:
        os.chdir(folder)


CODE = re.compile(r"^```(?:python|\{code-cell\} ipython3|\{code-block\} python)\n(?::\S+: .*\n)*(.*?)^```", re.S | re.M)


def test_python_on_pages_parses_and_imports_what_there_is() -> None:
    imported = 0
    for page in pages():
        for code in CODE.findall(page.read_text(encoding="utf-8")):
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("simcluster"):
                    module = importlib.import_module(node.module or "")
                    assert [name.name for name in node.names if not hasattr(module, name.name)] == [], page
                    imported += len(node.names)
    assert imported > 10


@pytest.mark.slow
def test_the_example_of_a_cost_runs_and_takes_the_time_that_it_states(tmp_path: Path) -> None:
    """2 x 512^3 FLOP at 100 GFLOP/s are 2.68435456 ms."""
    (code,) = re.findall(r"```python\n(.*?)```", inspect.getdoc(simcluster.Cost) or "", flags=re.DOTALL)
    assert "= 2.68 ms" in code
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert float(done.stdout.splitlines()[-1]) == pytest.approx(2.68435456e-3)
