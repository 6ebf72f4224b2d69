"""The numbers of a node are those of the part that computes: its CPU, or its accelerator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simcluster.lab.what_if.perturb import twice_as_fast
from simcluster.topology import Topology, describe, load, loads
from simcluster.topology.model.compute import AUTO
from simcluster.topology.presets.links import DEVICES
from simcluster.topology.replicas import replica
from tests.support.clusters import device_of, problems_of, read_device

CARD = "accelerator: {kind: cuda, flops: 14 TFLOP/s, memory_bandwidth: 900 GB/s, memory: 8 GB, operator_overhead: 4 us}"
BOX = f"flops: 300 GFLOP/s, memory: 64 GB, work_overhead: 40 us, {CARD}"
GFLOPs = 10**9


@pytest.mark.parametrize("name", [name for name, device in DEVICES.items() if device.accelerator is not None])
def test_a_preset_with_a_gpu_names_both_rates_apart(name: str) -> None:
    device = DEVICES[name]
    assert device.accelerator is not None
    assert "CPU" in device.source
    assert "GPU" in device.source
    for part in device.source.split("; "):
        if part.startswith("memory"):
            assert "estimate" in part or "measured" in part
    assert device.on("cpu").flops_per_s == device.flops_per_s < device.on(AUTO).flops_per_s
    assert device.on(AUTO).computes_on == device.accelerator.kind


def test_macs_and_jetsons_have_a_gpu_and_others_none() -> None:
    with_gpu = {name for name, device in DEVICES.items() if device.accelerator is not None}
    assert with_gpu == {name for name in DEVICES if name.startswith(("mac", "jetson"))}


def test_a_node_computes_on_its_cpu_unless_it_is_asked_for_more() -> None:
    assert read_device("device: mac-mini-m4") == DEVICES["mac-mini-m4"]
    on_gpu = read_device("device: mac-mini-m4, compute: auto")
    # 2.9 TFLOP/s and 103 GB/s are the GPU's; the memory is the machine's; PyTorch's overhead is that of MPS.
    assert (on_gpu.flops_per_s, on_gpu.memory_bandwidth_Bps) == (2.9e12, 103e9)
    assert (on_gpu.memory_bytes, on_gpu.operator_overhead_s, on_gpu.work_overhead_s) == (16 * GFLOPs, 20e-6, 0.0)
    assert on_gpu == read_device("device: mac-mini-m4, compute: mps")
    assert read_device("device: raspberry-pi-4, compute: auto") == DEVICES["raspberry-pi-4"]


def test_the_numbers_of_a_node_are_its_cpus_and_those_inside_accelerator_the_accelerators() -> None:
    cpu, card = read_device(BOX), read_device(f"{BOX}, compute: 'cuda:1'")
    assert (cpu.flops_per_s, cpu.memory_bytes, cpu.work_overhead_s) == (3e11, 64 * GFLOPs, 40e-6)
    assert (card.flops_per_s, card.memory_bytes, card.work_overhead_s) == (14e12, 8 * GFLOPs, 0.0)
    assert (card.memory_bandwidth_Bps, card.operator_overhead_s, card.computes_on) == (900e9, 4e-6, "cuda:1")
    assert card.cpu == cpu


def test_an_own_accelerator_replaces_single_numbers_of_the_presets() -> None:
    device = read_device("device: mac-mini-m4, compute: auto, accelerator: {flops: 3 TFLOP/s}")
    assert (device.flops_per_s, device.memory_bandwidth_Bps, device.computes_on) == (3e12, 103e9, "mps")
    assert "accelerator given in the topology" in device.source


def test_without_numbers_of_its_own_an_accelerator_has_those_given() -> None:
    device = read_device("flops: 100 TFLOP/s, compute: cuda")
    assert (device.flops_per_s, device.computes_on, device.cpu) == (100e12, "cuda", None)
    assert device.has_what_it_is_asked
    assert not read_device("device: mac-mini-m4, compute: cuda").has_what_it_is_asked
    assert not read_device("device: raspberry-pi-5, compute: mps").has_what_it_is_asked


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("flops: 1 TFLOP/s, accelerator: {kind: cuda}", "nodes.a.accelerator.flops: found nothing, expected a rate"),
        ("flops: 1 TFLOP/s, accelerator: {flops: 2 TFLOP/s}", "nodes.a.accelerator.kind: found nothing, expected cuda"),
        (
            "device: mac-mini-m4, accelerator: {kind: cudo}",
            "nodes.a.accelerator.kind: found 'cudo'; did you mean 'cuda'?",
        ),
        ("device: mac-mini-m4, accelerator: {memry: 1 GB}", "did you mean 'memory'?"),
        ("device: mac-mini-m4, accelerator: mps", "expected a mapping with kind, flops"),
    ],
)
def test_a_wrong_accelerator_is_named_once(keys: str, words: str) -> None:
    (problem,) = problems_of(keys)
    assert words in problem


def box(**more: str) -> Topology:
    return loads(f"nodes: {{a: {{{BOX}, compute: cuda}}}}", overrides={f"nodes.a.{key}": more[key] for key in more})


def test_processes_share_cpu_and_accelerator() -> None:
    shared = box(nproc_per_node="2")
    for name in ("a_0", "a_1"):
        device = shared.nodes[name].device
        assert device is not None
        assert device.cpu is not None
        # 14 TFLOP/s, 8 GB; 300 GFLOP/s, 64 GB
        assert (device.flops_per_s, device.memory_bytes) == (7e12, 4 * GFLOPs)
        assert (device.cpu.flops_per_s, device.cpu.memory_bytes) == (1.5e11, 32 * GFLOPs)
    assert loads(shared.document) == shared


def test_what_if_makes_the_part_faster_that_computes() -> None:
    device = device_of(box())
    twice = twice_as_fast(device)
    assert all(key.startswith("accelerator.") for key in twice)
    faster = device_of(loads(box().document, overrides={f"nodes.a.{key}": value for key, value in twice.items()}))
    assert (faster.flops_per_s, faster.cpu) == (28e12, replace(device.cpu or device, accelerator=faster.accelerator))


def test_a_replica_slows_the_measured_times_of_the_accelerator() -> None:
    spread = {"profile": [1, 2]}
    of_card = {"kind": "cuda", "flops": "1 TFLOP/s", "profile": {"w/apply": "1 ms"}}
    node = {"flops": "1 GFLOP/s", "compute": "cuda", "profile": {"w/apply": "1 s"}, "accelerator": of_card}
    measured = loads({"nodes": {"a": node | {"spread": spread}}})
    second = device_of(loads(replica(measured, 1)))
    assert second.profile is not None
    assert second.cpu is not None
    assert second.cpu.profile is not None
    assert second.profile.seconds("w/apply", 1.0) == 2e-3
    assert second.cpu.profile.seconds("w/apply", 1.0) == 1.0


def test_a_description_says_what_a_node_computes_on() -> None:
    text = describe(load("smolcluster"))
    assert "on mps, asked for auto: 2.9 TFLOP/s" in text
    assert "on cpu: 60 GFLOP/s" in text
