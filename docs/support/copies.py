"""Every page as Markdown next to its HTML, and llms.txt and llms-full.txt, which lead to them."""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

import nbformat
from support.plain import of_notebook, plain
from support.sources import expand

SUMMARY_CHARACTERS = 200


def _write(app: Any, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir)
    texts = {name: _text(app, name) for name in app.env.found_docs}
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    _copy_files(app, folder)
    sections = _sections(app)
    head = f"# {app.config.project}\n\n> {_summary(texts[app.config.root_doc])}\n"
    index = "".join(_section(caption, names, app.env, texts) for caption, names in sections)
    (folder / "llms.txt").write_text(head + index, encoding="utf-8")
    order = dict.fromkeys([app.config.root_doc, *(name for _, names in sections for name in names)])
    whole = "\n\n".join(f"<!-- {name}.md -->\n\n{texts[name]}" for name in order)
    (folder / "llms-full.txt").write_text(whole, encoding="utf-8")


def _copy_files(app: Any, folder: Path) -> None:
    """Copy pictures and files that pages lead to: the links of the copies are those of the sources.

    Pictures that a cell draws are below build; no copy has them.
    """
    for name in {*app.env.images, *app.env.dlfiles}:
        source, path = Path(app.srcdir) / name, folder / name
        is_drawn = source.is_relative_to(Path(app.srcdir) / "build")
        if not is_drawn and source.is_file() and path.resolve().is_relative_to(folder.resolve()):
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, path)


def _text(app: Any, name: str) -> str:
    """Return page *name* as Markdown; a page that was executed as its outputs have it."""
    executed = Path(app.outdir).parent / "jupyter_execute" / f"{name}.ipynb"
    source = Path(app.env.doc2path(name))
    notebook = executed if executed.is_file() else source if source.suffix == ".ipynb" else None
    if notebook is None:
        return _linked(app, name, plain(expand(source.read_text(encoding="utf-8"))))
    glued = executed.with_suffix(".glue.json")
    outputs = json.loads(glued.read_text(encoding="utf-8")) if glued.is_file() else {}
    numbers = {key: output["data"].get("text/plain", "") for key, output in outputs.items()}
    return _linked(app, name, of_notebook(nbformat.read(notebook, as_version=4), numbers))


def _linked(app: Any, name: str, text: str) -> str:
    """Return the *text* of page *name* with titles in its lists of pages, and links to the copies of notebooks."""

    def entry(found: re.Match[str]) -> str:
        page = posixpath.normpath(posixpath.join(posixpath.dirname(name), found[1]))
        return f"- [{app.env.titles[page].astext()}]({found[1]}.md)"

    text = re.sub(r"^- \[(\S+)\]\(\1\.md\)$", entry, text, flags=re.MULTILINE)
    return re.sub(r"\]\(([^)\s]+)\.ipynb\)", r"](\1.md)", text)


def _sections(app: Any) -> list[tuple[str, list[str]]]:
    """Return (caption, pages below it in their order) of each list of pages of the home page."""
    from sphinx import addnodes

    home = app.env.get_doctree(app.config.root_doc)
    return [
        (tree["caption"] or "Start", [name for _, entry in tree["entries"] for name in _below(app.env, entry)])
        for tree in home.findall(addnodes.toctree)
    ]


def _below(env: Any, name: str) -> list[str]:
    return [name, *(below for child in env.toctree_includes.get(name, []) for below in _below(env, child))]


def _section(caption: str, names: list[str], env: Any, texts: dict[str, str]) -> str:
    rows = [
        ": ".join(filter(None, (f"- [{env.titles[name].astext()}]({name}.md)", _summary(texts[name]))))
        for name in names
    ]
    return "\n".join([f"\n## {caption}\n", *rows, ""])


def _summary(text: str) -> str:
    """Return the first sentences of a page, without links and markup, up to SUMMARY_CHARACTERS."""
    prose = [part for part in text.split("\n\n") if re.match(r"[\w*`\[]", part)]
    if prose and len(prose[0]) < SUMMARY_CHARACTERS / 2 and not prose[0].startswith("*"):
        prose[0] = " ".join(prose[:2])
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)|\*", r"\1", " ".join((prose or [""])[0].split()))
    return textwrap.shorten(words, SUMMARY_CHARACTERS, placeholder=" ...")


def setup(app: Any) -> dict[str, bool]:
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
