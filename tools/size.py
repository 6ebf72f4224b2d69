"""`python -m tools.size`: count the code tokens of every package, and check the limits on their
sums.

A code token is any token of `tokenize` except comments, line breaks, changes of indentation, and
strings that are statements, such as docstrings. The program exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path

from tests.support.root import ROOT

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
DIRECTORIES = ("simcluster", "backends", "tests", "tools")
WINGS = ("lab", "lm")
PACKAGES = ("core", *WINGS, "backends")
LIMITS = {"packages": 630_000, "core": 320_000, "tests and tools": 700_000}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.size", description=__doc__)
    parser.add_argument("root", type=Path, nargs="?", default=ROOT, help="a checkout (default: this one)")
    root = parser.parse_args().root
    by_part: dict[str, Counter[str]] = {}
    for path in (path for directory in DIRECTORIES for path in root.glob(f"{directory}/**/*.py")):
        part, package = place(path.relative_to(root))
        by_part.setdefault(part, Counter())[package] += code_tokens(path)
    for part, packages in by_part.items():
        print(f"{part:<26}{packages.total():>9,}")
        for package, tokens in packages.most_common():
            print(f"  {package:<24}{tokens:>9,}")
    sums = {part: packages.total() for part, packages in by_part.items()}
    sums["packages"] = sum(sums.get(part, 0) for part in PACKAGES)
    for name, limit in LIMITS.items():
        print(f"{name:<26}{sums.get(name, 0):>9,} of {limit:,}")
    return int(any(sums.get(name, 0) > limit for name, limit in LIMITS.items()))


def place(path: Path) -> tuple[str, str]:
    """Return (part of the project, package in that part) of the file at *path*."""
    top, below = path.parts[0], path.parts[1:]
    if top in ("tests", "tools"):
        return "tests and tools", "tools" if top == "tools" else "/".join(path.parts[:2])
    if top == "backends" or below[0] in WINGS:
        part, below = (top if top == "backends" else below[0]), below[1:]
    else:
        part = "core"
    return part, below[0] if len(below) > 1 else "(modules)"


def code_tokens(path: Path) -> int:
    """Return the number of code tokens in a file."""
    tree = ast.parse(path.read_bytes())
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    ignored = {
        (value.lineno, value.col_offset)
        for value in statements
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }
    with tokenize.open(path) as lines:
        tokens = tokenize.generate_tokens(lines.readline)
        return sum(token.type not in LAYOUT and token.start not in ignored for token in tokens)


if __name__ == "__main__":
    sys.exit(main())
