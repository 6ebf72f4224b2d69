"""Every algorithm keeps what is claimed of it: all of them quickly, in the simulator; two on sockets, too.

`make verify` asks for all of it, N = 1, 2, 3, 4, 7 on both backends.
"""

from __future__ import annotations

import pytest

from simcluster.algorithms import ALGORITHMS
from simcluster.lab.verify import verify
from simcluster.lab.verify.checks.survives import QUICK
from simcluster.lab.verify.claims import claim_about
from simcluster.lab.verify.faults import NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_it_keeps_its_claim(name: str) -> None:
    found = verify(name, backend="sim", quick=True)
    assert found.ok, found.table()
    assert sum(check.verdict == "holds" for check in found.checks) >= 15, found.table()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_more_ranks_end_where_its_reference_and_what_it_equals_do(name: str) -> None:
    found = verify(name, backend="sim", nodes=[3, 4, 7], only=["one process", "identities"])
    assert found.ok, found.table()


@pytest.mark.parametrize("name", ["all_reduce_dp", "edp"])
def test_it_keeps_it_on_sockets(name: str) -> None:
    found = verify(name, nodes=[3], only=["backends"])
    assert found["simulator = sockets"].verdict == "holds", found.table()


def test_every_algorithm_has_a_claim() -> None:
    for name in ALGORITHMS:
        assert claim_about(name) is not None, name


def test_the_faults_that_are_tried_quickly_exist() -> None:
    assert set(QUICK) <= set(NAMES)
