"""`make figures`: makes the figures of docs/figures.md with the commands on that page.

This takes minutes.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence

from tests.support.root import ROOT

PAGE = ROOT / "docs" / "figures.md"


def commands(page: str) -> list[list[str]]:
    """Return the commands of *page* that write a figure, in order. Each is a list of words."""
    words = [shlex.split(line) for line in page.splitlines() if line.startswith("    simcluster ")]
    return [found for found in words if "--out" in found and "FOLDER" not in found]


def main(arguments: Sequence[str]) -> None:
    """Run all commands or, if there are *arguments*, those that contain any of these words."""
    for words in commands(PAGE.read_text(encoding="utf-8")):
        if arguments and not set(arguments) & set(words):
            continue
        print(shlex.join(words), flush=True)
        reports = ["--no-report"] if words[1] != "figure" else []
        subprocess.run([sys.executable, "-m", *words, *reports], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(sys.argv[1:])
