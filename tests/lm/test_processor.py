"""What a node computes on: the device and the threads of its topology, in predictions and in real runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.placements import rank
from simcluster.lm.plan.shape import PRESETS
from simcluster.lm.plan.times import Lengths
from simcluster.lm.processor import NodeProcessor, processors_of
from simcluster.process.intra_op import one_thread, usable_cores
from simcluster.topology import Topology, loads


def two(device: str, **keys: Any) -> Topology:
    node = {"device": device} | keys
    return loads({"nodes": {"a": node, "b": node}, "links": [{"between": ["a", "b"], "type": "ethernet-1g"}]})


def first_token_s(topology: Topology) -> float:
    lengths = Lengths(prompt=512)
    return rank(ClusterModelCosts(topology, PRESETS["smollm2"], lengths), 1).placements[0].ttft_s


def test_predictions_are_for_the_threads_and_the_device_that_the_topology_names() -> None:
    flops = [two("raspberry-pi-5", **keys).device("a").flops_per_s for keys in ({}, {"threads": 1}, {"threads": 9})]
    assert flops == [60e9, 15e9, 60e9]  # the preset's rate is that of four cores
    assert two("raspberry-pi-5", threads=1, flops="30 GFLOP/s").device("a").flops_per_s == 30e9, "given numbers stay"
    assert first_token_s(two("raspberry-pi-5", threads=1)) > 2 * first_token_s(two("raspberry-pi-5"))
    assert first_token_s(two("mac-mini-m4", compute="auto")) < first_token_s(two("mac-mini-m4", compute="cpu"))


def test_nodes_of_one_machine_share_its_cores() -> None:
    nodes = {
        "a": {"machine": "desk"}, "b": {"machine": "desk"}, "c": {"address": "10.0.0.3"}, "d": {},
        "e": {"address": "127.0.0.2"}, "f": {"threads": 2, "compute": "auto"},
    }  # fmt: skip
    links = [{"between": ["a", other], "type": "ethernet-1g"} for other in "bcdef"]
    document = {"machines": {"desk": {"cores": 4}}, "links": links}
    found = processors_of(
        loads(document | {"nodes": {name: {"flops": "1 GFLOP/s"} | keys for name, keys in nodes.items()}})
    )
    assert {name: one.sharing for name, one in found.items()} == {"a": 2, "b": 2, "c": 1, "d": 3, "e": 3, "f": 3}
    assert (found["f"].compute, found["f"].threads) == ("auto", 2)


@pytest.mark.parametrize(("threads", "sharing"), [(None, 1), (None, 1000), (3, 1000)])
def test_a_thread_computes_with_its_nodes_share_of_the_cores(threads: int | None, sharing: int) -> None:
    with one_thread():  # which restores the number
        NodeProcessor("cpu", threads, sharing).use_threads()
        assert torch.get_num_threads() == (threads or max(1, usable_cores() // sharing))


def test_a_real_node_without_the_device_that_its_topology_names_ends_the_run(command: Any, tmp_path: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has it")
    (tmp_path / "one.yaml").write_text(json.dumps({"nodes": {"a": {"device": "x86-laptop", "compute": "cuda:0"}}}))
    code, out, err = command(
        "generate", "one.yaml", "--model", "smollm2", "--backend", "sockets", "--prompt", "hi", "--max-tokens", "1"
    )
    assert code == 1
    assert "compute: found 'cuda:0', expected auto, or one that this machine has: cpu" in out + err


def test_a_limit_on_threads_is_a_whole_number() -> None:
    with pytest.raises(Exception, match=r"nodes\.a\.threads: found 0, expected a whole number from 1 to 1024"):
        two("raspberry-pi-5", threads=0)
