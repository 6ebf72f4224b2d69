"""K-async and K-batch-async: which pushes make an update. The time of one is in experiments/papers."""

from __future__ import annotations

import pytest

from tests.core.algorithms.served import bowl, serve, slow


def test_an_update_is_of_k_different_ranks_and_those_wait_for_it() -> None:
    # Ranks that take 1, 2 and 5 s, K = 2: the first waits at 1 for the second at 2; both begin again: 4. At 5 the third
    # has one too, and the first's third is there at 5 as well: an update of these two.
    done = serve("k_async", slow(1, 2, 5), 3, bowl(0.1), k=2)
    assert sorted(set(done.times("applied")))[:3] == pytest.approx([2.0, 4.0, 5.0])
    assert done.values("staleness")[:6] == [0.0, 0.0, 0.0, 0.0, 0.0, 2.0]


def test_an_update_of_a_batch_may_be_of_one_rank() -> None:
    done = serve("k_async", slow(1, 100), 4, bowl(0.1), k=2, batch=True)
    assert done.times("applied")[:4] == pytest.approx([2.0, 2.0, 4.0, 4.0])


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("server_trains", [True, False])
def test_every_push_is_applied_also_where_k_does_not_divide_their_number(batch: bool, server_trains: bool) -> None:
    done = serve("k_async", slow(1, 2.5, 4), 7, bowl(0.1), k=2, batch=batch, server_trains=server_trains)
    assert done.last("applied") == done.pushed == 7 * (3 + server_trains)
