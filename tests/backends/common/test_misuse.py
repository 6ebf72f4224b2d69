"""Wrong calls of a transport's verbs are answered with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest
from simcluster_backends.common.arguments import check_tag, check_work, wrong_peer

from simcluster.transport import ANY, FREE, Cost

NAMES = ["mini1", "mini2", "pi5"]


@pytest.mark.parametrize(
    ("peer", "kind", "words"),
    [
        ("mini2", TypeError, "addressed by its rank, not by its name: 'mini2' is rank 1"),
        ("mini3", TypeError, "did you mean 'mini"),
        (1.5, TypeError, "a rank is a whole number, not the float 1.5"),
        (None, TypeError, "not the NoneType None"),
        (3, ValueError, "rank 3 is no peer of rank 0: expected 0 to 2 except 0"),
        (0, ValueError, "rank 0 is no peer of rank 0"),
    ],
)
def test_a_wrong_peer_is_told_which_ranks_there_are(peer: object, kind: type, words: str) -> None:
    error = wrong_peer(peer, 0, NAMES)
    assert type(error) is kind
    assert words in str(error)


def test_a_node_that_is_alone_has_no_peers_to_name() -> None:
    assert "this node is alone" in str(wrong_peer(0, 0, ["mini1"]))


def test_a_tag_is_text_or_any() -> None:
    check_tag("weights")
    check_tag(ANY)
    with pytest.raises(TypeError, match="a tag is text, not the int 5"):
        check_tag(5)


@pytest.mark.parametrize(
    ("work", "cost", "words"),
    [
        (len, 1e6, r"cost=Cost\(flops, memory_bytes\) or FREE, not the float 1000000.0"),
        (len, None, "not the NoneType None"),
        ([1.0, 2.0], FREE, r"compute\(f, x, cost=...\), not the list \[1.0, 2.0\]"),
    ],
)
def test_work_and_its_cost_are_told_apart_from_anything_else(work: Any, cost: Any, words: str) -> None:
    check_work(len, Cost(1.0))
    with pytest.raises(TypeError, match=words):
        check_work(work, cost)


def test_an_async_function_is_no_work_for_a_device() -> None:
    async def train() -> None: ...

    with pytest.raises(TypeError, match="train is async: await it"):
        check_work(train, FREE)
