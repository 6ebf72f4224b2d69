"""`python -m tools.changed`: print the tests of changed parts, as arguments for pytest.

A part is a package together with the directory of its tests, which has the same name. A part has
changed if a commit after BASE, an environment variable, touches it. By default, BASE is the newest
commit that is at least a day older than the last one, since related commits are only hours apart.
Without such a commit or without git, every part counts as changed. The output is empty if no part
has changed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import PurePosixPath

from tests.support.root import ROOT

DAY_S = 86_400

PLACES = {
    "simcluster/lab": "tests/lab",
    "simcluster/lm": "tests/lm",
    "backends/simcluster_backends": "tests/backends",
    "simcluster": "tests/core",
}
"""Directory of packages -> directory of their tests.

Nested directories come before the directories that contain them.
"""

WHOLE = ("docs", "experiments", "notebooks", "schemas", "topologies")
"""Directories of files for users, which tests/whole and tests/notebooks check."""

VERIFIED = ("simcluster/algorithms", "simcluster/collectives", "simcluster/compression", "simcluster/overlays")
VERIFYING = "tests/lab/verify"
"""Parts whose defects `verify` finds, and its tests, which find most of the planted ones."""

EVERYTHING = "tests/whole"
"""Tests of the whole library, which a change in any part may break."""


def parts_of(files: Iterable[str]) -> list[str]:
    """Return the tests for *files*, whose paths are relative to the root of the repository."""
    found: set[str] = set()
    for file in files:
        found.update(_part_of(PurePosixPath(file)))
    there = {path for path in found if (ROOT / path).exists()}
    return sorted(path for path in there if not any(str(above) in there for above in PurePosixPath(path).parents))


def _part_of(file: PurePosixPath) -> Iterable[str]:
    top = file.parts[0]
    if top == "tests" and len(file.parts) > 3:
        return [str(PurePosixPath(*file.parts[:3]))]
    if top == "tests":
        return [str(file)] if file.name.startswith("test_") else []
    if top == "tools":
        name = PurePosixPath(file.parts[1]).stem
        return [str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "tools").glob(f"test_*{name}*.py")]
    if top in WHOLE or len(file.parts) == 1:
        return ["tests/whole", "tests/notebooks"]
    for source, tests in PLACES.items():
        if file.is_relative_to(source):
            part = file.relative_to(source).parts[0]
            own = [] if part.startswith("__") else [f"{tests}/{part}", f"{tests}/test_{part}"]
            return [*own, EVERYTHING, *([VERIFYING] if any(map(file.is_relative_to, VERIFIED)) else [])]
    return []


def changed_files() -> list[str] | None:
    """Return the files that changed since BASE, or None if BASE is unknown."""
    base = os.environ.get("BASE") or _commit_of_the_day_before()
    said = _git("diff", "--name-only", base, "HEAD") if base else None
    return None if said is None else said.splitlines()


def _commit_of_the_day_before() -> str | None:
    newest_s = _git("log", "-1", "--format=%ct")
    if newest_s is None:
        return None
    return _git("rev-list", "-1", f"--before={int(newest_s) - DAY_S}", "HEAD") or None


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def main() -> None:
    files = changed_files()
    print(*(["tests"] if files is None else parts_of(files)))


if __name__ == "__main__":
    main()
