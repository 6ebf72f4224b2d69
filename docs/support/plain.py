"""A page as plain Markdown: without directives and roles, with the numbers and outputs that the build computed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

FENCE = re.compile(r"^(\s*)(`{3,}|:{3,})(.*)$")
DIRECTIVE = re.compile(r"^\{([\w:-]+)\}\s*(.*)$")
DROPPED = {"py:currentmodule", "raw"}  # with all that is in them
CODE = {"code-block", "code-cell", "literalinclude"}
HIDDEN = {"remove-cell", "remove-input"}
FOLDED = {"hide-input", "hide-cell"}


def plain(text: str, numbers: Mapping[str, str] | None = None) -> str:
    """Return *text* with *numbers*, by name, in the place of its glue roles."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"\{glue(?::text)?\}`([^`]+)`", lambda found: _number(found[1], numbers or {}), text)
    text = re.sub(r"^\(\S+\)=\n", "", text, flags=re.MULTILINE)
    return "\n".join(_without_gaps(_unfold(text.splitlines()))).strip() + "\n"


def _without_gaps(lines: list[str]) -> Iterator[str]:
    """Yield *lines* with at most one that is empty in a row, except in code."""
    fence = before = ""
    for line in lines:
        if found := FENCE.match(line):
            fence = "" if fence == found[2] else fence or found[2]
        if line or before or fence:
            yield line
        before = line


def of_notebook(notebook: Any, numbers: Mapping[str, str]) -> str:
    """Return an executed *notebook* as Markdown: what its page shows, without code that only checks the page."""
    parts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(cell["source"])
        elif cell["cell_type"] == "code":
            tags = set(cell["metadata"].get("tags", []))
            if not tags & HIDDEN and not (tags & FOLDED and "computed(" in cell["source"]):
                parts.append(f"```python\n{cell['source']}\n```")
            if not tags & {"remove-cell", "remove-output"}:
                parts.extend(map(_output, cell["outputs"]))
    return plain("\n\n".join(part for part in parts if part), numbers)


def _output(output: Any) -> str:
    data = output.get("data", {})
    if "text/markdown" in data:
        return str(data["text/markdown"])
    if any(kind.startswith("application/") for kind in data):  # a number that the prose has
        return ""
    text = (output.get("text") or data.get("text/plain", "")).rstrip()
    if text.startswith("Figure: "):
        return text
    return f"```text\n{text}\n```" if text.strip() else ""


def _number(key: str, numbers: Mapping[str, str]) -> str:
    name, _, form = key.partition(":")
    text = numbers[name].strip("'\"")
    return format(float(text), form) if form else text


def _unfold(lines: list[str]) -> list[str]:
    """Return *lines* with the content of directives in the place of the directives."""
    found: list[str] = []
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        end = _end(lines, at, fence[2]) if fence else at
        if fence is None or end == at:
            found.append(lines[at])
        elif directive := DIRECTIVE.match(fence[3]):
            found += _of_directive(directive[1], directive[2], lines[at + 1 : end])
        else:
            found += lines[at : end + 1]
        at = end + 1
    return found


def _end(lines: list[str], at: int, fence: str) -> int:
    """Return the line that closes the *fence* at line *at*; *at* itself if none does."""
    closing = re.compile(rf"^\s*{re.escape(fence[0])}{{{len(fence)},}}\s*$")
    return next((other for other in range(at + 1, len(lines)) if closing.match(lines[other])), at)


def _of_directive(name: str, title: str, body: list[str]) -> list[str]:
    options: dict[str, str] = {}
    while body and (option := re.match(r"^:([\w-]+):\s*(.*)$", body[0])):
        options[option[1]] = option[2]
        body = body[1:]
    if name in DROPPED or "hidden" in options:
        return []
    if name == "toctree":
        caption = [f"**{options['caption']}**", ""] if "caption" in options else []
        return [*caption, *(f"- [{entry}]({entry}.md)" for entry in body if entry), ""]
    if name == "grid":
        title = ""
    if name == "grid-item-card":  # its list of pages, then its text: as the page shows them
        start = next((at for at, line in enumerate(body) if line.startswith("```{toctree}")), 0)
        body = [*body[start:], "", *body[:start]]
    if name in CODE:
        body = body[1:] if body and not body[0] else body
        file = [f"`{options['caption']}`:", ""] if "caption" in options else []
        return [*file, f"```{title if name == 'code-block' else 'python'}".rstrip(), *body, "```"]
    if name in ("figure", "image"):
        return [f"![{options.get('alt', '')}]({title})", "", *_unfold(body)]
    if name.startswith("py:"):
        title = " ".join([*(word for word in ("async", "classmethod", "staticmethod") if word in options), title])
        return [f"### `{title}`" if name in ("py:class", "py:exception") else f"#### `{title}`", "", *_unfold(body), ""]
    link = options.get("link")
    head = f"[{title}]({link}{'' if '.' in link else '.md'})" if link and title else title
    return [*([f"**{head}**", ""] if title else []), *_unfold(body), ""]
