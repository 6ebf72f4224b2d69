"""The setup of a server."""

from __future__ import annotations

from pathlib import Path

import msgspec

from simcluster.inference.request import Request
from simcluster.serving.hosting import Wanted, hosted
from simcluster.serving.run import answer_all
from simcluster.serving.setup import Layout, Placed
from tests.inference.models.test_trained import SIZES, folder_of
from tests.support import clusters


def test_a_conversations_next_turn_uses_what_the_one_before_left(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES | {"context": 256})
    setup, _ = hosted(Wanted(str(tmp_path), placement="alone"), clusters.star(1))
    first = tuple(range(150))
    # The second turn computes 150 + 20 tokens, less one chunk of 128: the first one 150.
    turns = (Request("0", first, 2), Request("1", (*first, *range(20)), 2, arrival_s=100.0))
    found = answer_all(msgspec.structs.replace(setup, requests=turns), clusters.star(1))
    before_s, after_s = (found.answers[name].ttft_s for name in "01")
    assert before_s is not None
    assert after_s is not None
    assert after_s < before_s


def test_a_placement_is_described_as_it_is_in_force(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    file = tmp_path / "placement.yaml"
    file.write_text("kind: replicas\nnodes: [n0, n1, n2]\nprefill: [n1]\n")
    setup, served = hosted(Wanted(str(tmp_path), placement=str(file)), clusters.star(3))
    first = served.place(None)
    assert [(part.node, part.role) for part in first.parts] == [("n1", "prefill"), ("n0", "decode"), ("n2", "decode")]
    # Without the node that prefills, the others do both; then one node in a pipeline of two has one layer of three.
    found = served.place(Placed(Layout("replicas", (0, 2), (3, 3)), setup.limits, {1: "killed"}))
    assert [(part.node, part.role, part.layers) for part in found.parts] == [("n0", "", (0, 3)), ("n2", "", (0, 3))]
    assert [(lost.node, lost.why) for lost in found.lost] == [("n1", "killed")]
    split = served.place(Placed(Layout("pipeline", (2, 0), (1, 2)), setup.limits))
    assert [(part.node, part.layers) for part in split.parts] == [("n2", (0, 1)), ("n0", (1, 3))]
    assert split.parts[0].cache_bytes * 2 == split.parts[1].cache_bytes
    predicted = [one.predict(5, 5) for one in (found, split)]
    assert predicted[0] != predicted[1]
