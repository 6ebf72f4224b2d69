"""`python -m tools.english [--list]`: count tell-tale forms of clumsy English per 10,000 words."""

from __future__ import annotations

import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.support.root import PACKAGES, ROOT

FORMS = {  # form: (pattern, limit per 10,000 words)
    "nobody, somebody, ...": (r"(?i)\b(no|some|every|any)body\b", 2),
    "begins with What": (r"\AWhat\b(?![^.|]*\?)", 2),
    "Who, Whoever": (r"(\A|\.\s+)Who\b|\b[Ww]hoever\b", 2),
    "of which, to whom": (r"(?i)\b(of|in|to)\s+(which|whom)\b", 5),
    "of its own": (r"(?i)\bone's\s+own\b|\bof\s+(its|their)\s+own\b", 2),
    "whose": (r"(?i)\bwhose\b", 4),
    "beside": (r"(?i)\bbeside\b", 2),
    "behind": (r"(?i)\bbehind\b", 2),
    "anew": (r"(?i)\banew\b", 2),
    "so many": (r"(?i)\bso\s+(many|much|often)\b", 2),
}
Chunk = tuple[Path, int, str]
"""(file, line, text) of a paragraph, a docstring or a comment."""


def documents() -> list[Path]:
    """Return the pages to check. Pages in docs/history are never edited, so they are left out."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "history"]
    return [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")), *pages]


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in package.rglob("*.py")]


def of_document(path: Path) -> Iterator[Chunk]:
    """Yield the paragraphs, list items and table rows of a page, without code."""
    text = path.read_text(encoding="utf-8")
    for code in (r"^```.*?^```", r"^    .*?$", r"`[^`]*`", r"\]\([^)]*\)"):
        text = re.sub(code, lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    for found in re.finditer(r"(?:[^\n]+\n?)+?(?=\n|\Z|[-|#] )", text):
        yield path, text.count("\n", 0, found.start()) + 1, found[0].strip("-| \n")


def of_source(path: Path) -> Iterator[Chunk]:
    """Yield the docstrings and comments of a module."""
    before = tokenize.NEWLINE
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield path, token.start[0], token.string.lstrip("# ")
            elif token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                yield path, token.start[0], token.string.strip("rf\"' \n")
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                before = token.type


def count(chunks: list[Chunk], *, lists: bool) -> dict[str, float]:
    """Return form -> its occurrences per 10,000 words of *chunks*.

    If *lists*, print their places.
    """
    words = sum(len(re.findall(r"[A-Za-z']+", text)) for *_, text in chunks)
    per = dict.fromkeys(FORMS, 0.0)
    for form, (pattern, _) in FORMS.items():
        for path, line, text in chunks:
            for found in re.finditer(pattern, text):
                per[form] += 1e4 / words
                if lists:
                    at = line + text.count("\n", 0, found.start())
                    print(f"{path.relative_to(ROOT)}:{at}: {form}: {text[max(found.start() - 40, 0) :][:90]!r}")
    return per


def main() -> int:
    """Print the counts. Return 1 if any exceeds its limit."""
    lists = "--list" in sys.argv
    docs = count([chunk for path in documents() for chunk in of_document(path)], lists=lists)
    code = count([chunk for path in sources() for chunk in of_source(path)], lists=lists)
    print(f"{'per 10,000 words':24}{'docs':>6}{'code':>6}{'limit':>7}")
    for form, (_, limit) in FORMS.items():
        print(f"{form:24}{docs[form]:6.1f}{code[form]:6.1f}{limit:7}")
    return int(any(per[form] > limit for per in (docs, code) for form, (_, limit) in FORMS.items()))


if __name__ == "__main__":
    sys.exit(main())
