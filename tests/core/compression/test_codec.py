"""Streams of compressed tensors: what is not sent is kept to the last bit, and compressing takes time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from simcluster.compression import KINDS, Codec
from simcluster.compression.compressor import FeedbackCompressor, VectorLayout
from simcluster.rng import NodeRandom
from simcluster.transport import FREE, Transport
from simcluster.workloads import quadratic
from tests.support.clusters import now, run, star

FEEDBACK = [name for name, kind in KINDS.items() if issubclass(kind, FeedbackCompressor)]
RNG = NodeRandom(1, "n0")


def tensors(seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in ((12, 9), (7,), (3, 4, 5))]


def with_feedback(kind: str) -> dict[str, Any]:
    return {"kind": kind, "error_feedback": True}


def test_who_has_error_feedback() -> None:
    assert FEEDBACK == ["power_sgd", "random_k", "sign", "top_k"]


@pytest.mark.parametrize("kind", FEEDBACK)
def test_sent_and_residual_are_the_input_exactly_step_after_step(kind: str) -> None:
    stream, before = Codec(with_feedback(kind), RNG, "s", tensors(0)), torch.zeros(175, dtype=torch.float64)
    for step in range(20):
        given = torch.cat([tensor.flatten() for tensor in tensors(step)]).double()
        sent = torch.cat([tensor.flatten() for tensor in stream.decode(stream.encode(tensors(step)))]).double()
        assert stream.residual is not None
        assert torch.equal(sent + stream.residual, given + before)
        before = stream.residual.clone()


@pytest.mark.parametrize("kind", FEEDBACK)
def test_in_double_precision_to_a_rounding(kind: str) -> None:
    stream = Codec(with_feedback(kind), RNG, "s", tensors(0, torch.float64))
    sent, given = torch.zeros(175, dtype=torch.float64), torch.zeros(175, dtype=torch.float64)
    for step in range(20):
        inputs = tensors(step, torch.float64)
        given += torch.cat([tensor.flatten() for tensor in inputs])
        sent += torch.cat([tensor.flatten() for tensor in stream.decode(stream.encode(inputs))])
    assert stream.residual is not None
    torch.testing.assert_close(sent + stream.residual, given, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", FEEDBACK)
def test_without_feedback_nothing_is_kept(kind: str) -> None:
    stream = Codec({"kind": kind, "error_feedback": False}, RNG, "s", tensors(0))
    stream.encode(tensors(0))
    assert stream.residual is None


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_leaves_its_input_alone(kind: str) -> None:
    for dtype in (torch.float32, torch.float64):
        given = tensors(0, dtype)
        stream = Codec(kind, RNG, "s", given)
        for _ in range(3):
            parts = stream.encode(given)
            first = [part.clone() for part in parts]
            stream.encode(given)
            assert all(map(torch.equal, given, tensors(0, dtype)))
            assert all(map(torch.equal, parts, first)), "what is under way does not change either"


@pytest.mark.parametrize("kind", ["random_k", "qsgd", "terngrad"])
def test_draws_belong_to_the_node_and_the_stream(kind: str) -> None:
    def sent(rng: NodeRandom, name: str) -> list[Tensor]:
        return Codec(kind, rng, name, tensors(0)).encode(tensors(0))

    assert all(map(torch.equal, sent(RNG, "a"), sent(NodeRandom(1, "n0"), "a")))
    for other in (sent(RNG, "b"), sent(NodeRandom(1, "n1"), "a"), sent(NodeRandom(2, "n0"), "a")):
        assert not all(map(torch.equal, sent(RNG, "a"), other))


def test_streams_of_one_node_do_not_disturb_each_other() -> None:
    alone, first, second = (Codec("qsgd", RNG, name, tensors(0)) for name in ("a", "a", "b"))
    for step in range(3):
        second.encode(tensors(step))
        assert all(map(torch.equal, alone.encode(tensors(step)), first.encode(tensors(step))))


@pytest.mark.parametrize("kind", KINDS)
def test_compressing_and_restoring_take_the_devices_time(kind: str) -> None:
    # Devices of 1e9 FLOP/s without a limit on memory: a second for each 1e9 elements written.
    stream = Codec(kind, RNG, "s", tensors(0))

    async def body(node: Transport) -> list[float]:
        times = [now()]
        parts = await stream.compress(node, tensors(0))
        times.append(now())
        await stream.restore(node, parts)
        return [*times, now()]

    (times,) = run(star(1), body)
    assert times[1] - times[0] == pytest.approx(stream.encode_cost.flops / 1e9)
    assert times[2] - times[1] == pytest.approx(stream.decode_cost.flops / 1e9)
    assert stream.encode_cost.flops >= 175
    assert stream.decode_cost.memory_bytes > 0
    assert stream.encode_cost.kind == f"{kind}/encode"


def test_costs_grow_with_the_vector_and_nothing_costs_nothing() -> None:
    small, large = (Codec("int8", RNG, "s", [torch.zeros(length)]) for length in (2048, 8192))
    assert large.encode_cost.flops == pytest.approx(4 * small.encode_cost.flops, rel=0.01)
    assert Codec("none", RNG, "s", tensors(0)).encode_cost == FREE
    empty = Codec("int8", RNG, "s", [torch.zeros(0)])
    assert empty.encode_cost == FREE
    assert [tensor.numel() for tensor in empty.decode(empty.encode([torch.zeros(0)]))] == [0]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 40])
def test_chunks_are_cut_as_torch_cuts_and_know_whose_tensors_they_hold(size: int) -> None:
    layout = VectorLayout.of([torch.zeros(2, 3), torch.zeros(0), torch.zeros(()), torch.zeros(9)])
    chunks = layout.cut(size)
    assert [chunk.length for chunk in chunks] == [len(part) for part in torch.arange(16).tensor_split(size)]
    owners = torch.tensor([0] * 6 + [1] + [2] * 9)
    for chunk, part in zip(chunks, owners.tensor_split(size), strict=True):
        assert chunk.lengths == torch.unique_consecutive(part, return_counts=True)[1].tolist()


def test_top_one_percent_with_feedback_reaches_the_dense_loss_and_without_does_not() -> None:
    # 100 weights, of which 1 is sent a step, so a weight waits for about 100 steps: slow enough for that to be stable.
    workload = quadratic(features=100, samples=1000, batch_size=50, learning_rate=0.005, noise=0.0)
    losses = {}
    for name, compression in {
        "dense": "none",
        "feedback": {"kind": "top_k", "fraction": 0.01},
        "none": {"kind": "top_k", "fraction": 0.01, "error_feedback": False},
    }.items():
        replica = workload.replica(0, 1, 0, 600)
        stream = Codec(compression, RNG, "s", replica.parameters)
        for batch in replica.batches():
            replica.apply(stream.decode(stream.encode(replica.loss_and_gradients(batch)[1])))
        losses[name] = replica.evaluate()["loss"]
    start = workload.replica(0, 1, 0, 1).evaluate()["loss"]
    assert losses["dense"] < 0.05 * start
    assert losses["feedback"] < 0.05 * start
    assert losses["none"] > 0.5 * start
