"""Replicas by name: one on every node that makes answers come sooner, or what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace as replaced

from simcluster.errors import UsageError
from simcluster.lm.plan.times import Lengths
from simcluster.lm.request import Request
from simcluster.lm.serving.placement import layout_of
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.start_server import ServingOptions, hosted
from simcluster.topology import Device
from tests.lm.models.test_trained import SIZES, folder_of
from tests.lm.serving.timed import SHAPE
from tests.support import clusters

LENGTHS = Lengths(20, 10)
WHOLE = int(SHAPE.whole_bytes + SHAPE.cache_bytes(SHAPE.layers, LENGTHS.most))
"""The bytes of a replica with the cache of one request."""

PLAIN = Device("plain", 1e12, 1e9)
SLOW = Device("slow", 1e9, 1e6)


def test_all_of_three_equal_nodes_serve(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    cluster = clusters.star(3)
    setup, served = hosted(ServingOptions(str(tmp_path), placement="replicas"), cluster)
    assert [part.node for part in served.place(None).parts] == ["n0", "n1", "n2"]
    at_once = tuple(Request(str(number), (1, 2, 3), 4) for number in range(3))
    found = answer_all(replaced(setup, requests=at_once), cluster)
    assert {len(one.tokens) for one in found.answers.values()} == {4}
    first, *others = (one.busy_s for one in found.nodes)
    assert first > 0
    assert others == pytest.approx([first, first], rel=1e-9)


@pytest.mark.parametrize("requests", [1, 3, 8])
def test_a_replica_needs_room_for_one_request_only(requests: int) -> None:
    small = Device("small", 1e12, 1e9, WHOLE)
    cluster = clusters.star(3, n0=small, n1=small, n2=small)
    assert layout_of("replicas", cluster, SHAPE, LENGTHS, requests).ranks == (0, 1, 2)


def test_a_node_that_would_slow_answers_gets_no_replica() -> None:
    cluster = clusters.star(3, n0=PLAIN, n1=SLOW, n2=PLAIN)
    assert layout_of("replicas", cluster, SHAPE, LENGTHS).ranks == (0, 2)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([PLAIN], "expected a topology with two workers"),
        ([PLAIN, SLOW], "expected auto, since one node is faster than several; or a file that names the nodes"),
        ([PLAIN, Device("small", 1e12, 1e9, WHOLE - 100)], "expected 100 B more memory at n1"),
        ([Device("small", 1e12, 1e9, WHOLE - lack) for lack in (300, 100, 200)],
         "expected 100 B more memory at n1 and 200 B more memory at n2"),
    ],
)  # fmt: skip
def test_what_replicas_lack_is_named(devices: list[Device], expected: str) -> None:
    cluster = clusters.star(len(devices), **{f"n{i}": device for i, device in enumerate(devices)})
    with pytest.raises(UsageError, match=f"replicas for small, {expected}"):
        layout_of("replicas", cluster, SHAPE, LENGTHS)
