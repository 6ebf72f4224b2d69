"""The documentation names what there is: links and paths lead somewhere, the commands are those of the program."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import simcluster
from tests.support.root import PACKAGES, ROOT
from tools import english, reference
from tools.by_hand import UNNEEDED

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PAGES = [ROOT / "CHANGELOG.md", *english.documents(), *(ROOT / "docs" / "history").glob("*.md")]


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, heading = target.partition("#")
        if name.startswith("http"):
            continue
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if heading:
            there = file.read_text(encoding="utf-8")
            headings = {anchor(found) for found in re.findall(r"^#+ (.+)$", there, flags=re.MULTILINE)}
            assert heading in headings | set(re.findall(r'<a id="([^"]+)">', there)), target


def test_the_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)", text))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")}
    for part in (ROOT / "docs" / "design").iterdir():
        assert f"(design/{part.name})" in (ROOT / "docs" / "design-decisions.md").read_text(encoding="utf-8")


def test_every_path_of_the_architecture_is_there() -> None:
    prose = re.sub(r"```.*?```", "", ARCHITECTURE, flags=re.DOTALL)
    named = [name for name in re.findall(r"`([\w./-]+)`", prose) if "/" in name]
    assert len(named) > 50
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_file_and_directory_of_the_tree_is_there() -> None:
    (tree,) = re.findall(r"```text\n(.*?)```", ARCHITECTURE, flags=re.DOTALL)
    above: list[str] = []
    shown = set()
    for line in tree.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        above[depth:] = [name]
        path = ROOT.joinpath(*above)
        assert path.exists(), path
        assert path.is_dir() == name.endswith("/")
        shown.add(path)
    for package in PACKAGES:
        assert {init.parent for init in package.glob("*/__init__.py")} <= shown


def test_the_reference_is_that_of_the_commands() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "`make reference` writes it again"


def test_a_node_needs_all_packages_but_those_that_it_does_without() -> None:
    (line,) = re.findall(r"pip install (simpy .*)", (ROOT / "docs" / "shelf.md").read_text(encoding="utf-8"))
    needed = {re.split(r"[<>=]", name)[0] for name in project()["dependencies"]}
    assert set(line.split()) == needed - set(UNNEEDED)


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def test_versions_and_licence_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    stated = project()
    assert (citation["version"], citation["license"]) == (stated["version"], stated["license"])
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith(f"{stated['license']} License")
    (newest,) = re.findall(r"^## (\S+) \(", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[:1]
    assert (newest, simcluster.__version__) == (stated["version"], stated["version"])


def test_clumsy_forms_are_counted_where_they_stand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nA node of\nwhich `nobody` knows.\n\n    nobody\n\n- Whoever comes.\n", encoding="utf-8")
    chunks = list(english.of_document(page))
    assert [line for _, line, _ in chunks] == [1, 3, 8]
    found = english.count(chunks, lists=False)
    assert [form for form, per in found.items() if per] == ["Who, Whoever", "of which, to whom"]
    module = tmp_path / "module.py"
    module.write_text('"""What it is."""\nx = "nobody"  # beside it\n', encoding="utf-8")
    found = english.count(list(english.of_source(module)), lists=False)
    assert [form for form, per in found.items() if per] == ["begins with What", "beside"]
