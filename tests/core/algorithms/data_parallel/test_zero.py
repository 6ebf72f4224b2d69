"""ZeRO: all stages are plain data parallelism, to the bit; they send and hold what the paper says, to the byte."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster

import simcluster
from simcluster.algorithms.data_parallel.layer_units import cut_into_units
from simcluster.algorithms.data_parallel.zero import zero
from simcluster.algorithms.data_parallel.zero_weights import HeldBytes, ZeroWeights
from simcluster.errors import UsageError
from simcluster.lab.bench.collective import ByteCounter
from simcluster.lab.verify.claims.data_parallel import zero as reference
from simcluster.topology import Device
from simcluster.workloads import Workload, gpt, mnist_mlp, quadratic
from tests.core.algorithms.trained import SEED, UNEVEN, close, train
from tests.support.clusters import star

MLP = mnist_mlp(hidden=20, batch_size=4, momentum=0.9)  # units of 15700 and 210 numbers, which 2, 5 and 10 divide
ADAM = mnist_mlp(hidden=20, batch_size=4, optimizer="adamw", learning_rate=0.001)
CLIPPED = mnist_mlp(hidden=20, batch_size=4, momentum=0.9, clip_norm=0.1)
TINY = gpt(width=16, heads=2, context=8, batch_size=2, optimizer="sgd", learning_rate=0.1)  # ties its embedding
DEFAULTS: dict[str, Any] = {"stage": 1, "staleness": 0}
STAGES = (0, 1, 2, 3)
LINK_BPS, LATENCY_S = 1e6, 1e-3
BUSY = star(3, LINK_BPS, LATENCY_S, **{f"n{rank}": Device("busy", 1e15, work_overhead_s=0.05) for rank in range(3)})


@pytest.mark.parametrize("workload", [MLP, ADAM, CLIPPED, TINY], ids=["momentum", "adamw", "clipped", "tied"])
@pytest.mark.parametrize("reduce", ["ring", "direct"])
def test_all_stages_give_the_same_bits_on_all_ranks(workload: Workload, reduce: str) -> None:
    vectors = [
        vector
        for stage in STAGES
        for vector in train("zero", 3, workload=workload, steps=2, stage=stage, reduce=reduce).vectors
    ]
    assert len(vectors) == 4 * 3
    assert all(torch.equal(vector, vectors[0]) for vector in vectors)


@pytest.mark.parametrize("stage", STAGES)
def test_with_staleness_every_update_is_exactly_that_late(stage: int) -> None:
    workload = quadratic(features=6, batch_size=4, dtype="float64")
    for staleness in (1, 2, 20):  # the last one is more than there are steps
        run = train("zero", 3, workload=workload, stage=stage, staleness=staleness)
        close(run.weights, reference(workload, 3, SEED, 12, {**DEFAULTS, "staleness": staleness}))
        recorded = run.values(1, "staleness")
        assert recorded == [min(staleness, step) for step in range(12)], "updates that the gradient's weights lacked"


def test_the_lead_over_the_slowest_rank_is_recorded() -> None:
    run = train("zero", star(3, n2=Device("slow", 1e4)), workload=MLP, steps=8, stage=0, staleness=3)
    # Of steps 1 to 8, ranks 0 and 1 begin with 0, 1, 2 and then 3 sums that wait for n2: 18 in all.
    assert [run.values(rank, "lead_mean") for rank in (0, 1)] == [[18 / 8], [18 / 8]]
    assert [run.values(rank, "lead_max") for rank in range(3)] == [[3], [3], [1]]
    assert run.values(0, "lead_mean") > run.values(2, "lead_mean")


def test_a_fast_rank_may_run_ahead_as_many_steps_as_staleness_says() -> None:
    # Rank 2 alone is slow, and only now and then: others go on meanwhile, and it need not wait for them.
    slow = [train("zero", UNEVEN, steps=12, stage=2, staleness=staleness) for staleness in (0, 1)]
    assert slow[1].elapsed_s < slow[0].elapsed_s


# what is sent


def sent(stage: int, size: int, steps: int, **settings: Any) -> list[int]:
    """Bytes of tensors that each rank sends."""
    replicas = [MLP.replica(rank, size, SEED, steps) for rank in range(size)]

    async def body(node: Any) -> int:
        counted = ByteCounter(node)
        await zero(counted, replicas[node.rank], stage=stage, **settings)  # type: ignore[arg-type]
        return counted.payload_B

    found: list[int] = SimCluster(star(size)).run([body] * size)
    return found


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize(("reduce", "gather"), [("ring", "ring"), ("direct", "broadcast")])
def test_every_rank_sends_what_the_paper_says(size: int, reduce: str, gather: str) -> None:
    model_bytes = 4 * (784 * 20 + 20 + 20 * 10 + 10)
    share = (size - 1) * model_bytes // size
    for stage, times in ((0, 2), (1, 2), (2, 2), (3, 3)):
        settings: Any = {"reduce": reduce, "gather": gather}
        assert sent(stage, size, 2, **settings) == [2 * times * share] * size, stage
    assert sent(3, size, 3, gather_interval=1) == [(9 + 2) * share] * size, "a model to judge after steps 1 and 2"


# what is held


def predicted(
    workload: Workload, stage: int, rank: int, size: int, prefetch: int, staleness: int
) -> tuple[dict[str, float], float]:
    """(the most of each kind, of all together): a walk through one step, all earlier ones still under way."""
    replica = workload.replica(rank, size, SEED, 1)
    units = cut_into_units(replica)
    full = [unit.size_bytes for unit in units]
    # As tensor_split cuts: the first parts are one number longer.
    own = [4 * (n // 4 // size + (rank < n // 4 % size)) for n in full] if stage else full
    used = [sum(full[unit.number] for unit in units if unit.layer == n) for n in range(len(replica.layers()))]
    state = {"sgd": sum(own), "adamw": 2 * sum(own) + 4 * len(own)}  # momentum; two moments, and steps as a number each
    kept = state["adamw" if workload is ADAM else "sgd"] + (sum(own) if stage < 3 else 0)
    parameters = sum(own) if stage == 3 else sum(full)
    # Of an earlier step: from stage 2 on only the first unit, which left last, is not known to be summed.
    earlier = staleness * (sum(own[1:]) + full[0] if stage >= 2 else sum(full))

    gathered_s, gradients_s, together = [0], [0], [0]
    uses = [*range(len(used)), *reversed(range(len(used)))]
    current = 0
    for position, layer in enumerate(uses):
        ahead = [used[n] for n in uses[position : position + prefetch + 1]] if stage == 3 else [0]
        gathered_s.append(sum(ahead))
        together.append(sum(ahead) + earlier + current)
        for unit in units if position >= len(used) else []:
            if unit.layer == layer:
                current += full[unit.number]
                together.append(sum(ahead[1:]) + earlier + current)
                gradients_s.append(earlier + current)
                if stage >= 2 and unit.number + 1 < len(units):  # the one before it has been summed
                    current += own[unit.number + 1] - full[unit.number + 1]
    most = {"parameters": parameters, "optimizer": kept, "gathered": max(gathered_s), "gradients": max(gradients_s)}
    return {f"{kind}_bytes": float(size) for kind, size in most.items()}, float(parameters + kept + max(together))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("workload", [MLP, ADAM], ids=["momentum", "adamw"])
def test_every_rank_holds_what_is_predicted_to_the_byte(workload: Workload, stage: int) -> None:
    for size in (1, 3):
        for prefetch, staleness in ((1, 0), (0, 1), (5, 2)):
            settings: Any = {"stage": stage, "prefetch": prefetch, "staleness": staleness}
            real, none = (
                train("zero", size, workload=workload, steps=4, numerics=numerics, **settings)
                for numerics in ("real", "none")
            )
            for run in (real, none):
                for rank in range(size):
                    most, peak = predicted(workload, stage, rank, size, prefetch, staleness)
                    found = {name: run.values(rank, name) for name in [*most, "peak_bytes"]}
                    assert found == {**{name: [value] for name, value in most.items()}, "peak_bytes": [peak]}


def test_giving_back_more_than_is_held_is_an_error() -> None:
    held = HeldBytes()
    held.take("gradients", 3)
    with pytest.raises(ValueError, match="4 bytes of gradients given back, of 3 held"):
        held.give("gradients", 4)


def test_stage_3_uses_no_weights_but_those_it_has_just_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = train("zero", 3, workload=MLP, steps=3, stage=3).vectors
    present = ZeroWeights.present

    @asynccontextmanager
    async def poisoned(weights: ZeroWeights, layer: Any) -> AsyncIterator[None]:
        async with present(weights, layer):
            yield
        layer.fill([torch.full_like(weights._replica.parameters[place], torch.nan) for place in layer.parameters])

    monkeypatch.setattr(ZeroWeights, "present", poisoned)
    found = train("zero", 3, workload=MLP, steps=3, stage=3).vectors
    assert all(torch.equal(mine, others) for mine, others in zip(found, expected, strict=True))


# settings, time, faults


def test_prefetched_layers_arrive_while_others_are_used() -> None:
    times = [train("zero", BUSY, workload=MLP, steps=3, stage=3, prefetch=n).elapsed_s for n in (0, 1)]
    assert times[1] < times[0]


def test_in_stage_3_rank_0_records_only_steps_whose_weights_it_has() -> None:
    run = train("zero", 2, steps=6, stage=3, gather_interval=4)
    assert [metric.step for metric in run.records[0].metrics if metric.name == "loss"] == [4, 6]
    assert [metric.step for metric in run.records[1].metrics if metric.name == "loss"] == [1, 2, 3, 4, 5, 6]


def test_a_layer_of_several_dtypes_makes_no_vector() -> None:
    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(4))
            self.shift = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return (inputs * self.scale).sum(1) + self.shift

    plain = quadratic(features=4)
    workload = Workload(
        model=Mixed,
        loss=lambda outputs, wanted: (outputs - wanted).square().mean(),
        train=(torch.ones(8, 4), torch.ones(8)),
        optimizer=plain.optimizer,
        batch_size=2,
    )
    with pytest.raises(UsageError, match=r"layer 0: found parameters of torch.float32, torch.float64, expected one"):
        cut_into_units(workload.replica(0, 1, 0, 1))


@pytest.mark.slow
def test_a_model_that_fits_into_no_rank_is_trained_in_parts(tmp_path: Path) -> None:
    """0.3 billion parameters: 1.2 GB of weights, as much of gradients, twice of moments, on ranks of 2.2 GB."""
    source: dict[str, Any] = {
        "name": "parts",
        "topology": {"generator": "star", "workers": 8, "device": {"flops": "1 TFLOP/s", "memory": "2.2 GB"}},
        "algorithm": {"name": "zero", "stage": 1},
        "workload": {"name": "gpt", "size": "1.3b", "layers": 4, "batch_size": 1, "context": 128},
        "stop": {"steps": 1},
        "numerics": "none",
    }
    with pytest.raises(UsageError, match="too little"):
        simcluster.run(source, out=tmp_path / "too large", report=False)
    run = simcluster.run(source, overrides={"algorithm.stage": 3}, out=tmp_path / "run", report=False)
    assert run.summary["status"] == "done"
    metrics = run.metrics.set_index("name")["value"]
    assert metrics["peak_bytes"].max() < 2e9
