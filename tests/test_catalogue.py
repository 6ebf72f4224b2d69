"""What can be named: every table, and the names alone without waiting for torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from simcluster.algorithms import ALGORITHMS
from simcluster.catalogue import KINDS, catalogue, names
from simcluster.workloads import WORKLOADS


@pytest.mark.parametrize("kind", ["kinds", *KINDS])
def test_the_names_alone_are_those_of_the_catalogue(kind: str) -> None:
    assert names(kind) == list(catalogue(kind))
    assert names(kind)


def test_every_algorithm_and_workload_is_listed_with_its_settings() -> None:
    assert names("algorithms") == sorted(ALGORITHMS)
    assert names("workloads") == sorted(WORKLOADS)
    assert catalogue("algorithms")["edp"].startswith("(pull_interval=1, max_staleness=None, damping='none', ")


def test_names_come_without_torch() -> None:
    code = (
        "import sys; from simcluster.catalogue import KINDS, names; [names(kind) for kind in KINDS];"
        "print([heavy for heavy in ('torch', 'pandas', 'plotly') if heavy in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
