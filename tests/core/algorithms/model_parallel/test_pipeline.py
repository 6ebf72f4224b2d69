"""Pipelines against one process, and what each setting does. Bubble and stash are in experiments/papers, too."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster
from torch import Tensor, nn

from simcluster.algorithms.model_parallel.pipeline import pipeline
from simcluster.algorithms.model_parallel.pipeline_plan import ORDERS
from simcluster.errors import UsageError
from simcluster.runs.record import NodeRecord
from simcluster.transport import Transport
from simcluster.workloads import Workload, gpt, mnist_mlp, sgd, train_alone
from tests.core.algorithms.model_parallel import runs
from tests.core.algorithms.model_parallel.runs import SEED, losses_alone, same, values
from tests.support.clusters import star

run, well = partial(runs.run, "pipeline"), partial(runs.well, "pipeline")
FREE_LINKS: dict[str, Any] = {"bandwidth_Bps": 1e18, "latency_s": 0.0}
MLP = mnist_mlp(hidden=16, batch_size=4)
TINY = gpt(width=16, heads=2, context=8, batch_size=4, optimizer="sgd", learning_rate=0.1)
UNTIED = gpt(
    size="7b", layers=1, width=16, heads=2, feed_forward=24, vocabulary=256, context=8, batch_size=4, clip_norm=None
)


def refused(*args: Any, **kwargs: Any) -> str:
    """What every rank raised."""
    results, _, _ = run(*args, **kwargs)
    errors = {str(result) for result in results}
    assert all(isinstance(result, UsageError) for result in results)
    assert len(errors) == 1
    return errors.pop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "size", "settings"),
    [
        (MLP, 1, {}),
        (MLP, 1, {"schedule": "interleaved", "chunks": 3, "micro_batches": 2}),
        (MLP, 2, {}),
        (MLP, 3, {"schedule": "gpipe", "micro_batches": 6}),
        (TINY, 1, {"micro_batches": 4}),
        (TINY, 2, {"schedule": "gpipe", "micro_batches": 8}),
        (TINY, 2, {"schedule": "interleaved", "chunks": 3, "micro_batches": 4}),
        (TINY, 3, {"schedule": "interleaved"}),
        (TINY, 4, {"micro_batches": 1}),
        (TINY, 7, {"micro_batches": 2}),
        (UNTIED, 3, {"micro_batches": 2}),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_any_stages_and_micro_batches_compute_what_one_process_computes(
    workload: Workload, size: int, settings: dict[str, Any]
) -> None:
    replicas, _ = well(workload, star(size), **settings)
    same(replicas[0].parameters, train_alone(workload, size, SEED, 3))


def test_a_clipped_norm_is_that_of_all_stages() -> None:
    # Far below the gradient's norm, so that every step is scaled; each stage alone would be scaled less.
    workload = mnist_mlp(hidden=16, batch_size=4, clip_norm=0.01)
    replicas, _ = well(workload, star(3))
    same(replicas[0].parameters, train_alone(workload, 3, SEED, 3))
    tied = gpt(width=16, heads=2, context=8, batch_size=4, optimizer="sgd", clip_norm=0.01)
    replicas, _ = well(tied, star(3))
    same(replicas[0].parameters, train_alone(tied, 3, SEED, 3))


@pytest.mark.parametrize("order", [(0, 1), (2, 0), (1, 2), (2,), (0,), (2, 1, 0)], ids=str)
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_any_order_of_some_ranks_computes_what_one_process_computes(order: tuple[int, ...], schedule: str) -> None:
    tied = gpt(width=16, heads=2, context=8, batch_size=4, optimizer="sgd", clip_norm=0.01)
    replicas, records = well(tied, star(3), schedule=schedule, order=order, micro_batches=6)
    same(replicas[0].parameters, train_alone(tied, 3, SEED, 3))
    for rank in {1, 2} - {*order}:
        assert (records[rank].spans, records[rank].metrics) == ([], []), "it took no part"
    known = [1, 2, 3] if order == (0,) else [3] if 0 in order else []  # the steps at which rank 0 is whole
    assert [metric.step for metric in records[0].metrics if metric.name == "loss"] == known


def test_a_parameter_of_two_ranks_stays_one() -> None:
    # The embedding is the output layer, too: the first and the last rank hold it, and their copies never part.
    replicas, _ = well(TINY, star(3))
    assert torch.equal(replicas[0].parameters[0], replicas[2].parameters[0])
    assert not torch.equal(replicas[0].parameters[0], TINY.replica(0, 3, SEED, 1).parameters[0])


# Equal stages: the bubble.


class Equal(nn.Module):
    """One product forward and one of the same size backward, whatever comes in: the first layer has no less to do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8) / 8)
        self.register_buffer("other", torch.randn(8, 8))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + (self.weight @ self.other)[0]


def equal(layers: int) -> Workload:
    train = torch.randn(64, 8), torch.randn(64, 8)
    model = lambda: nn.Sequential(*[Equal() for _ in range(layers)])  # noqa: E731
    return Workload(model, nn.functional.mse_loss, train, sgd(0.01), batch_size=6)


def idle(record: NodeRecord, works: int, end_s: float) -> float:
    """The share of the time until *end_s* in which a rank does not do the first *works* pieces of its work."""
    spans = [span for span in record.spans if span.kind == "compute"][:works]
    return 1 - sum(span.end_s - span.start_s for span in spans) / end_s


def test_equal_stages_in_another_order_idle_as_long_and_stash_by_their_place() -> None:
    # p = 3 of 4 ranks, m = 6: idle (p-1)/(m+p-1) = 2/8; place i of the order stashes p - i.
    order = (3, 0, 2)
    _, records = well(equal(3), star(4, **FREE_LINKS), 1, order=order, micro_batches=6)
    ends = [[span for span in records[rank].spans if span.kind == "compute"][11].end_s for rank in order]
    for place, rank in enumerate(order):
        assert idle(records[rank], 12, max(ends)) == pytest.approx(2 / 8, abs=1e-9)
        assert set(values(records[rank], "stashed")) == {3 - place}


@pytest.mark.parametrize(("p", "v"), list(itertools.product([1, 2, 3, 4], [1, 2, 3])))
def test_every_order_has_every_task_once_and_forward_first(p: int, v: int) -> None:
    for m, (name, order) in itertools.product([p, 3 * p], ORDERS.items()):
        chunks = v if name == "interleaved" else 1
        for i in range(p):
            tasks = order(p, i, m, chunks)
            assert len(set(tasks)) == len(tasks) == 2 * m * chunks
            seen = set()
            for way, chunk, k in tasks:
                assert way == "forward" or (chunk, k) in seen
                seen.add((chunk, k))


# What is recorded, sent and refused.


def test_the_loss_is_the_batchs_on_every_rank() -> None:
    _, records = well(MLP, star(3), 3, micro_batches=6)
    losses = losses_alone(MLP, 3, 3)
    assert values(records[1], "loss") == values(records[2], "loss") == pytest.approx(losses, rel=1e-5)
    assert values(records[0], "loss") == pytest.approx(losses[-1:], rel=1e-5), "rank 0 records what can be judged"


def test_rank_0_is_whole_when_it_records() -> None:
    seen: list[float] = []
    replicas = [MLP.replica(rank, 3, SEED, 5) for rank in range(3)]

    async def body(node: Transport) -> None:
        await pipeline(node, replicas[node.rank], gather_interval=2)

    cluster = SimCluster(star(3), SEED)
    cluster.members[0].recorder.on_metrics = lambda step, _: seen.append((step, replicas[0].snapshot()))  # type: ignore[arg-type]
    assert cluster.run([body] * 3) == [None] * 3
    assert [step for step, _ in seen] == [2, 4, 5]  # type: ignore[misc]
    for step, weights in seen:  # type: ignore[misc]
        same(weights, train_alone(MLP, 3, SEED, step))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"schedule": "gpipe"},
        {"schedule": "interleaved"},
        {"micro_batches": 2},
        {"cuts": (1, 2)},
        {"flops_per_s": (1e9, 1e9, 4e9)},
        {"flops_per_s": (1e9, 1e9, 4e9), "bandwidth_Bps": (1.0, 1e9, 1e9)},
        {"gather_interval": 2},
        {"order": (1, 0, 2)},
        {"order": (2, 1), "gather_interval": 2},
    ],
    ids=str,
)
def test_without_numerics_it_sends_and_takes_the_same(settings: dict[str, Any]) -> None:
    real, none = (well(TINY, star(3), numerics=numerics, **settings)[1] for numerics in ("real", "none"))
    for computed, timed in zip(real, none, strict=True):
        assert computed.spans == timed.spans
        assert computed.sent_to == timed.sent_to


def test_settings_that_do_not_fit_are_refused_on_every_rank_with_all_that_is_wrong() -> None:
    told = refused(MLP, star(3), micro_batches=5, chunks=2, flops_per_s=(1.0, 2.0), bandwidth_Bps="topology")
    assert told.splitlines() == [
        "micro_batches: found 5, expected a divisor of 12, the batch of all ranks (3 of 4 each)",
        "chunks: found 2, expected 1 with 1f1b; schedule: interleaved has several",
        "flops_per_s: found 2 numbers, expected 3, one per rank",
        "bandwidth_Bps: found topology, expected numbers, one per rank: only an experiment knows its topology",
    ]
    told = refused(MLP, star(3), schedule="interleaved", micro_batches=4)
    assert told == "micro_batches: found 4, expected a multiple of the 3 ranks, which interleaved stages take in turns"
    assert refused(MLP, star(4)).startswith("pipeline: found 4 stages, expected at most 3 stages, one for each layer")
    told = refused(MLP, star(2), cuts=(3,))
    assert told.startswith("cuts: found [3], expected 1 rising numbers from 1 to 2: the first layer of each stage")
    told = refused(MLP, star(2), bandwidth_Bps=(1.0, 1.0))
    assert told == "bandwidth_Bps: found no flops_per_s, expected both: FLOPs and bytes are balanced as seconds"


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ("auto", "order: found auto, expected a list of ranks: only an experiment can choose an order"),
        ((), "order: found no node, expected at least one: each in the list holds a stage"),
        ((0, 3), "order: found rank 3, expected ranks from 0 to 2"),
        ((0, 1, 0), "order: found 0 twice, expected each node at most once"),
        (("n0",), "order: found 'n0', expected ranks from 0 to 2: only an experiment has names"),
    ],
)
def test_an_order_that_is_none_is_refused_on_every_rank(order: Any, told: str) -> None:
    assert refused(MLP, star(3), order=order) == told
