"""A change runs the slow tests of its part."""

from __future__ import annotations

import pytest

from tools.changed import changed_files, parts_of


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("simcluster/topology/read/nodes.py", ["tests/core/topology", "tests/whole"]),
        ("simcluster/payload.py", ["tests/core/test_payload.py", "tests/whole"]),
        ("simcluster/compression/mean.py", ["tests/core/compression", "tests/lab/verify", "tests/whole"]),
        ("simcluster/lab/sweeps/run.py", ["tests/lab/sweeps", "tests/whole"]),
        ("simcluster/lm/plan/plan.py", ["tests/lm/plan", "tests/whole"]),
        ("backends/simcluster_backends/sim/stream.py", ["tests/backends/sim", "tests/whole"]),
        ("tests/lab/sweeps/test_sweep.py", ["tests/lab/sweeps"]),
        ("tests/whole/test_readme.py", ["tests/whole/test_readme.py"]),
        ("tests/support/root.py", []),
        ("tools/hostile/siege.py", ["tests/tools/test_hostile.py", "tests/tools/test_hostile_server.py"]),
        ("docs/faults.md", ["tests/notebooks", "tests/whole"]),
        ("README.md", ["tests/notebooks", "tests/whole"]),
    ],
)
def test_a_file_leads_to_the_tests_of_its_part(file: str, parts: list[str]) -> None:
    assert parts_of([file]) == parts


def test_tests_inside_a_directory_that_changed_are_not_named_again() -> None:
    assert parts_of(["docs/faults.md", "tests/whole/test_readme.py"]) == ["tests/notebooks", "tests/whole"]


def test_an_unknown_base_means_that_everything_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASE", "no such commit")
    assert changed_files() is None
