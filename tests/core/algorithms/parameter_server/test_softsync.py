"""n-softsync: how many gradients make an update, and how stale they are."""

from __future__ import annotations

import pytest
import torch

from tests.core.algorithms.served import Served, bowl, equal, serve

LAMBDA = 6


@pytest.mark.parametrize(("n", "gathered"), [(1, 6), (2, 3), (4, 1), (6, 1)])
def test_an_update_takes_lambda_over_n_gradients(n: int, gathered: int) -> None:
    done = serve("softsync", equal(LAMBDA), 10, n=n)
    assert len(set(done.metric_steps("applied"))) == 60 // gathered
    assert done.last("applied") == done.pushed == 60


def test_equal_ranks_alternate_and_are_all_equally_stale() -> None:
    done = serve("softsync", equal(4), 10, n=4)
    assert done.values("staleness") == [0, 1, 2, 3] + [3] * 36


def test_the_rest_at_the_end_is_divided_by_its_own_number() -> None:
    # Three ranks, one of them lost at once, two gradients each, K = 3. At 1 s two come; at 2 s, when both have taken
    # another one at x = 1, the third makes an update, 1 - 0.5 (1 + 1 + 1)/3 = 0.5, and one is left: 0.5 - 0.5 1/1 = 0.
    done = serve("softsync", equal(3), 2, bowl(0.5), n=1, faults=("kind: crash, node: n1, at: 0.5 s",), check=False)
    assert done.values("applied") == [3, 3, 3, 4]
    assert done.values("staleness") == [0, 0, 0, 1]
    assert done.weights[0].item() == pytest.approx(0.0)


def test_weights_travel_only_if_there_are_newer_ones() -> None:
    # 4 equal ranks and one update a round: of four replies in a round only the last one's is newer than its download,
    # and the next round's first three have missed it: they were answered before.
    done = serve("softsync", equal(4), 10, bowl(0.1), n=1)
    always = serve("softsync", equal(4), 10, bowl(0.1), n=4)
    assert done.records[0].messages_sent == always.records[0].messages_sent == 40
    assert done.records[0].bytes_sent < always.records[0].bytes_sent


def hit(fault: str) -> Served:
    return serve("softsync", equal(3), 20, bowl(0.1), n=1, faults=(fault,), check=False)


def test_it_goes_on_without_a_lost_worker_with_as_many_gradients_an_update() -> None:
    done = hit("kind: crash, node: n1, at: 4.5 s")
    assert [done.results[rank] for rank in (0, 2, 3)] == [None, None, None]
    assert done.last("applied") == 4 + 2 * 20
    # 44 gradients by three, and the two that are left.
    assert len(set(done.metric_steps("applied"))) == 15
    assert torch.isfinite(done.weights[0]).all()
