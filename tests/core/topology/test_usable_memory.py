"""A system keeps some of its machine's memory: by preset, by a node's key, and in everything that counts memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.topology import Device, loads
from simcluster.topology.presets.links import DEVICES

MACS = {"nodes": {name: {"device": "mac-mini-m4-pro"} for name in "abcd"}, "links": []}
RING = [{"between": list(pair), "type": "thunderbolt-5"} for pair in ("ab", "bc", "cd", "ad")]


def device(**keys: Any) -> Device:
    found = loads({"nodes": {"a": keys}}).nodes["a"].device
    assert found is not None
    return found


@pytest.mark.parametrize("name", DEVICES)
def test_every_preset_keeps_some_and_says_why(name: str) -> None:
    found = DEVICES[name]
    assert found.usable_bytes is not None
    assert found.memory_bytes is not None
    assert 0.5 * found.memory_bytes < found.usable_bytes < found.memory_bytes
    assert "usable memory" in found.source


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"device": "mac-mini-m4-pro"}, "16 of 24 GB"),
        ({"device": "mac-mini-m4-pro", "memory": "48 GB"}, "36 of 48 GB"),
        ({"device": "mac-mini-m4-pro", "compute": "mps"}, "16 of 24 GB"),
        ({"device": "mac-mini-m4-pro", "usable_memory": "21 GB"}, "21 of 24 GB"),
        ({"device": "raspberry-pi-4", "memory": "1 GB"}, "500 MB of 1 GB"),
        ({"flops": "1 TFLOP/s", "memory": "24 GB"}, "24 GB"),
        ({"flops": "1 TFLOP/s", "memory": "24 GB", "usable_memory": "20 GB"}, "20 of 24 GB"),
        ({"flops": "1 TFLOP/s"}, ""),
    ],
)
def test_the_words_say_how_much(keys: dict[str, Any], words: str) -> None:
    assert device(**keys).memory_words == words


def test_an_accelerator_has_all_of_its_own_memory() -> None:
    gpu = {"kind": "cuda", "flops": "14 TFLOP/s", "memory": "8 GB"}
    assert device(device="x86-laptop", accelerator=gpu, compute="cuda").usable_bytes == 8 * 10**9


def test_processes_share_what_is_usable() -> None:
    nodes = loads({"nodes": {"a": {"device": "mac-mini-m4-pro", "nproc_per_node": 2}}}).nodes
    found = [node.device.usable_bytes for node in nodes.values() if node.device is not None]
    assert found == [8 * 10**9, 8 * 10**9]


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(UsageError, match="usable_memory: found '30 GB', expected at most the memory, 24 GB"):
        device(device="mac-mini-m4-pro", usable_memory="30 GB")


def test_no_row_of_a_plan_fills_more_than_is_usable(command: Any, tmp_path: Path) -> None:
    (tmp_path / "macs.yaml").write_text(json.dumps(MACS | {"links": RING}), encoding="utf-8")
    plan = ("plan", "macs.yaml", "--model", "70b", "--weights", "q4", "--engine", "llama.cpp", "--requests", "1")
    _, out, _ = command(*plan)
    assert "usable memory: 16 of 24 GB on a, b, c, d" in out
    _, out, _ = command(*plan, "--json")
    placements = json.loads(out)["rankings"][0]["placements"]
    parts = [part for placement in placements for part in placement["nodes"]]
    assert parts
    assert {(part["memory_bytes"], part["usable_bytes"]) for part in parts} == {(24 * 10**9, 16 * 10**9)}
    assert max(part["weights_bytes"] + part["cache_bytes"] for part in parts) <= 16 * 10**9


def test_training_counts_what_is_usable(command: Any, tmp_path: Path) -> None:
    node = {"device": "x86-laptop", "memory": "2 GB", "usable_memory": "1 MB"}
    experiment = {
        "topology": {"nodes": {"a": node}},
        "algorithm": {"name": "all_reduce_dp"},
        "workload": {"name": "gpt", "layers": 2, "width": 128, "context": 16, "batch_size": 2},
        "stop": {"steps": 1},
        "numerics": "none",
    }
    (tmp_path / "e.yaml").write_text(json.dumps(experiment), encoding="utf-8")
    code, _, err = command("run", "e.yaml")
    assert code == 2
    assert "nodes.a.memory: found 1 MB of 2 GB on a, " in err
