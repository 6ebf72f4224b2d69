"""Every compressor keeps the law of its paper, moves the bytes it says, and needs no values to know how many."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from simcluster.compression import KINDS, Codec
from simcluster.compression.bits import WIDTHS, pack_bits, unpack_bits, width_for
from simcluster.compression.power_sgd import orthogonal
from simcluster.rng import NodeRandom

RNG = NodeRandom(7, "n0")
LIKE = [torch.zeros(12, 9), torch.zeros(7), torch.zeros(3, 4, 5), torch.zeros(())]


def codec(compression: Any, like: list[Tensor], name: str = "s") -> Codec:
    return Codec(compression, RNG, name, like)


def once(compression: Any, vector: Tensor, name: str = "s") -> Tensor:
    """What *vector* is after one trip."""
    stream = codec(compression, [vector], name)
    return stream.decode(stream.encode([vector]))[0]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def many(compression: dict[str, Any], vector: Tensor, times: int) -> Tensor:
    """(times, d): what one stream makes of the same *vector*, again and again."""
    stream = codec(compression, [vector])
    return torch.stack([stream.decode(stream.encode([vector]))[0] for _ in range(times)])


vectors = st.tuples(st.integers(1, 60), st.integers(0, 2**31), st.sampled_from([1e-20, 1e-3, 1.0, 1e6])).map(
    lambda drawn: normal(drawn[0], seed=drawn[1]) * drawn[2]
)


# what travels


@given(st.sampled_from(WIDTHS), st.lists(st.integers(0, 255), min_size=1, max_size=40))
def test_bits_are_packed_without_a_gap_and_come_back(width: int, numbers: list[int]) -> None:
    codes = torch.tensor(numbers) % (2**width)
    codes = codes.to(torch.uint8)
    packed = pack_bits(codes, width)
    assert packed.nbytes == math.ceil(len(numbers) * width / 8)
    assert torch.equal(unpack_bits(packed, width, len(numbers)), codes)


def test_a_width_is_the_least_that_tells_all_values_apart() -> None:
    assert [width_for(values) for values in (2, 3, 4, 5, 16, 17, 255, 256)] == [1, 2, 2, 4, 4, 8, 8, 8]


BYTES = {  # of 1000 float32, which are 4000 bytes
    "bf16": 2000,
    "fp16": 2000,
    "int8": 1000 + 8,  # one block, of 1000
    "power_sgd": 2 * (50 + 20) * 4,  # a matrix of 50 x 20, rank 2
    "qsgd": 500 + 2 * 4,  # 7 levels are 4 bits; buckets of 512 and 488
    "random_k": 10 * 4 + 8,
    "sign": 125 + 4,
    "sparse_loco": 10 * 2 + 3 + 4,  # positions, 10 values in 2 bits, the scale of one chunk
    "terngrad": 250 + 4,
    "top_k": 10 * (4 + 4),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_travels_is_as_large_as_the_method_says(kind: str) -> None:
    parts = codec(kind, [normal(50, 20)]).encode([normal(50, 20)])
    assert sum(part.nbytes for part in parts) == BYTES[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sizes_do_not_depend_on_values_nor_on_there_being_any(kind: str, dtype: torch.dtype) -> None:
    like = [tensor.to(dtype) for tensor in LIKE]
    streams = [codec(kind, like) for _ in range(3)]
    inputs = [
        [normal(*tensor.shape, dtype=dtype) for tensor in like],
        like,
        [tensor.to("meta") for tensor in like],
    ]
    for _ in range(2):  # what is kept must not matter either
        seen = []
        for stream, tensors in zip(streams, inputs, strict=True):
            parts = stream.encode(tensors)
            seen.append([(part.shape, part.dtype) for part in parts])
            assert [t.shape for t in stream.decode(parts)] == [t.shape for t in like]
            assert {t.dtype for t in stream.decode(parts)} == {dtype}
        assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("kind", KINDS)
def test_any_node_decodes_what_another_sent(kind: str) -> None:
    like = [normal(*tensor.shape) for tensor in LIKE]
    sender, receiver = codec(kind, like), Codec(kind, NodeRandom(7, "n1"), "s", like)
    parts = sender.encode(like)
    assert all(map(torch.equal, sender.decode(parts), receiver.decode(parts)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_stays_none_for_all_to_see(kind: str) -> None:
    vector = normal(50, 20)
    vector[3, 4] = torch.nan
    assert once({"kind": kind, "fraction": 1.0} if kind == "random_k" else kind, vector).isnan().any()


def test_none_hands_back_the_same_tensors() -> None:
    stream = codec("none", LIKE)
    assert all(a is b for a, b in zip(stream.encode(LIKE), LIKE, strict=True))
    assert stream.encode_cost.flops == stream.decode_cost.flops == 0


# int8


@settings(max_examples=200, deadline=None)
@given(vectors, st.integers(1, 70), st.floats(-1e6, 1e6))
def test_int8_is_off_by_half_a_step_of_its_block_wherever_the_block_lies(v: Tensor, block: int, shift: float) -> None:
    vector = (v + shift).float()
    back = once({"kind": "int8", "block": block}, vector)
    for mine, theirs in zip(vector.split(block), back.split(block), strict=True):
        step = float(mine.max() - mine.min()) / 255
        # and a rounding of float32 of the largest number in the block
        assert float((mine - theirs).abs().max()) <= 0.501 * step + 3e-7 * float(mine.abs().max())


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(1, 40))
def test_int8_is_exact_for_constants(value: float, length: int) -> None:
    vector = torch.full((length,), value)
    assert torch.equal(once({"kind": "int8", "block": 16}, vector), vector)


def test_half_floats_are_torchs_own() -> None:
    vector = normal(100)
    assert torch.equal(once("fp16", vector), vector.half().float())
    assert torch.equal(once("bf16", vector), vector.bfloat16().float())


# choosing


@settings(deadline=None)
@given(vectors, st.floats(0.01, 1.0))
def test_top_k_leaves_at_most_its_share_of_the_energy(vector: Tensor, fraction: float) -> None:
    # |C(v) - v|^2 <= (1 - k/d) |v|^2
    vector = vector.double()
    kept = once({"kind": "top_k", "fraction": fraction, "error_feedback": False}, vector)
    k, d = math.ceil(fraction * len(vector) - 1e-9), len(vector)
    assert int((kept != 0).sum()) <= k
    assert float((kept - vector).square().sum()) <= (1 - k / d) * float(vector.square().sum()) * (1 + 1e-12)
    assert float(vector.abs().sort().values[d - k :].sum()) == pytest.approx(float(kept.abs().sum()))


@pytest.mark.parametrize("kind", ["top_k", "random_k"])
def test_all_of_it_is_the_vector_itself(kind: str) -> None:
    assert torch.equal(once({"kind": kind, "fraction": 1.0}, normal(77)), normal(77))


def test_random_k_is_right_on_average_and_as_wide_as_it_must_be() -> None:
    # Each number is kept with probability k/d and scaled by d/k: its variance is v^2 (d/k - 1), here 3 v^2.
    vector, times = normal(12, dtype=torch.float64), 4000
    drawn = many({"kind": "random_k", "fraction": 0.25}, vector, times)
    error = (drawn.mean(0) - vector).abs()
    assert bool((error <= 4 * (3 * vector.square() / times).sqrt()).all())
    assert float((drawn - vector).square().sum(1).mean() / vector.square().sum()) == pytest.approx(3.0, rel=0.1)


# quantising at random


@pytest.mark.parametrize(("levels", "d"), [(1, 16), (2, 16), (7, 16), (127, 16), (1, 64), (3, 64)])
def test_qsgd_is_right_on_average_and_within_its_variance(levels: int, d: int) -> None:
    # E Q(v) = v;  E|Q(v) - v|^2 <= min(d/s^2, sqrt(d)/s) |v|^2
    vector, times = normal(d, dtype=torch.float64), 1500
    drawn = many({"kind": "qsgd", "levels": levels, "bucket": d}, vector, times)
    spread = (drawn - vector).square().sum(1)
    bound = min(d / levels**2, math.sqrt(d) / levels) * float(vector.square().sum())
    assert float(spread.mean()) <= bound * (1 + 3 / math.sqrt(times))
    # Between two levels, norm/s apart, with the probability f of the upper: a variance of (norm/s)^2 f (1 - f).
    step = float(vector.norm()) / levels
    f = (vector.abs() / step).frac()
    assert bool(((drawn.mean(0) - vector).abs() <= 4 * step * (f * (1 - f) / times).sqrt() + 1e-12).all())


def test_qsgd_has_whole_levels_of_each_buckets_norm() -> None:
    vector = normal(40, dtype=torch.float64)
    drawn = once({"kind": "qsgd", "levels": 3, "bucket": 16}, vector)
    for mine, theirs in zip(vector.split(16), drawn.split(16), strict=True):
        levels = theirs / mine.norm() * 3
        torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-9)
        assert float(levels.abs().max()) <= 3
        assert bool((levels * mine >= 0).all()), "no sign is turned round"


def test_terngrad_is_right_on_average_and_has_three_values_a_tensor() -> None:
    like, times = [normal(10, dtype=torch.float64), 100 * normal(6, seed=1, dtype=torch.float64)], 1500
    stream = codec("terngrad", like)
    drawn = [stream.decode(stream.encode(like)) for _ in range(times)]
    for place, tensor in enumerate(like):
        largest = float(tensor.abs().max())
        found = torch.stack([tensors[place] for tensors in drawn])
        assert set(found.unique().tolist()) <= {-largest, 0.0, largest}
        # kept with probability |v|/s: its variance is |v| (s - |v|)
        deviation = (tensor.abs() * (largest - tensor.abs()) / times).sqrt()
        assert bool(((found.mean(0) - tensor).abs() <= 4 * deviation + 1e-12).all())


def test_clipping_makes_the_scaler_of_terngrad_so_many_deviations() -> None:
    vector = torch.cat([normal(1000), torch.tensor([1000.0])])
    limit = 2.5 * float(vector.std(correction=0))
    (_, scaler) = codec({"kind": "terngrad", "clip": 2.5}, [vector]).encode([vector])
    assert float(scaler) == pytest.approx(limit)


# signs


def test_signs_come_with_the_mean_amount_of_each_tensor() -> None:
    like = [torch.tensor([3.0, -1.0]), torch.tensor([-10.0, 10.0, -40.0])]
    stream = codec({"kind": "sign", "error_feedback": False}, like)
    scaled = stream.decode(stream.encode(like))
    assert [tensor.tolist() for tensor in scaled] == [[2.0, -2.0], [-20.0, 20.0, -20.0]]
    bare = codec({"kind": "sign", "error_feedback": False, "scaled": False}, like)
    assert [tensor.tolist() for tensor in bare.decode(bare.encode(like))] == [[1.0, -1.0], [-1.0, 1.0, -1.0]]


# factors


def test_power_sgd_finds_a_matrix_of_its_rank_and_then_the_best_of_any() -> None:
    low = normal(30, 2) @ normal(2, 20, seed=1)
    torch.testing.assert_close(once({"kind": "power_sgd", "rank": 2}, low), low, rtol=1e-4, atol=1e-4)
    # Of the same matrix again and again, a warm start goes to the best that rank 2 can do (Eckart, Young).
    matrix = normal(30, 20)
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    best = (u[:, :2] * s[:2]) @ v[:2]
    for warm, close in ((True, True), (False, False)):
        stream = codec({"kind": "power_sgd", "rank": 2, "error_feedback": False, "warm_start": warm}, [matrix])
        for _ in range(200):
            (found,) = stream.decode(stream.encode([matrix]))
        lost = float((found - matrix).norm() / (best - matrix).norm())
        assert (lost < 1.0001) == close


def test_columns_are_orthonormal_or_zero() -> None:
    matrix = normal(20, 3, dtype=torch.float64)
    made = orthogonal(torch.cat([matrix, matrix[:, :1] * 3, torch.zeros(20, 1, dtype=torch.float64)], 1))
    expected = torch.diag(torch.tensor([1.0, 1, 1, 0, 0], dtype=torch.float64))
    torch.testing.assert_close(made.T @ made, expected, rtol=0, atol=1e-12)


def test_power_sgd_comes_back_from_a_gradient_of_zeros() -> None:
    # Q = M^T P is zero then, and stays so for ever if nobody looks: nothing would be learnt any more.
    matrix = normal(30, 20)
    stream = codec({"kind": "power_sgd", "error_feedback": False}, [matrix])
    stream.encode([torch.zeros_like(matrix)])
    (found,) = stream.decode(stream.encode([matrix]))
    assert float((found - matrix).norm()) < float(matrix.norm())


def test_vectors_and_small_matrices_travel_as_they_are() -> None:
    like = [normal(20), normal(2, 3), normal(1, 50)]
    stream = codec("power_sgd", like)
    assert all(map(torch.equal, stream.decode(stream.encode(like)), like))
