"""ZeRO with compressed gradients: what travels, what is kept, and that stages still agree to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from simcluster.algorithms.data_parallel.zero_compression import check_compression
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.workloads import mnist_mlp
from tests.core.algorithms.trained import train

MLP = mnist_mlp(hidden=20, batch_size=4)  # units of 784 * 20 + 20 = 15,700 and 20 * 10 + 10 = 210 numbers
TOP = {"kind": "top_k", "fraction": 0.1}


@pytest.mark.parametrize("compression", ["int8", TOP], ids=str)
def test_stages_agree_to_the_bit_and_differ_from_whole_gradients(compression: Any) -> None:
    runs = [train("zero", 3, workload=MLP, steps=3, stage=stage, compression=compression) for stage in (0, 1, 2, 3)]
    vectors = [vector for run in runs for vector in run.vectors]
    assert all(torch.equal(vector, vectors[0]) for vector in vectors)
    assert not torch.equal(vectors[0], train("zero", 3, workload=MLP, steps=3).vectors[0])


@pytest.mark.parametrize(
    ("compression", "bytes_of"),
    [
        # One byte a number, and a minimum and a step size of 4 bytes for each block of up to 2048.
        ("int8", lambda n: n + 8 * -(-n // 2048)),
        # A tenth, rounded up: a float32 and an int32 each.
        (TOP, lambda n: 8 * -(-n // 10)),
    ],
)
def test_gradients_are_as_small_as_the_closed_form_and_weights_travel_whole(compression: Any, bytes_of: Any) -> None:
    small, whole = (
        train("zero", 5, workload=MLP, steps=2, stage=1, reduce="direct", compression=kind)
        for kind in (compression, "none")
    )
    # In each of 2 steps, each of 5 ranks sends 4 parts of 3,140 and of 42 numbers.
    count = 2 * 5 * 4
    headers = sum(small.sizes("gradients")) - count * (bytes_of(3140) + bytes_of(42))
    assert 0 < headers < 100 * 2 * count
    assert sum(small.sizes("weights")) == sum(whole.sizes("weights"))
    assert sum(whole.sizes("gradients")) > count * 4 * (3140 + 42)


def test_what_is_left_out_is_kept_and_sent_later() -> None:
    # Without error feedback nine tenths of each small gradient are lost; with it they come late.
    whole, fed, lost = (
        train("zero", 3, workload=MLP, steps=30, compression=kind)
        for kind in ("none", TOP, TOP | {"error_feedback": False})
    )
    off = [float((run.vectors[0] - whole.vectors[0]).norm()) for run in (fed, lost)]
    assert off[0] < 0.7 * off[1]
    # A residual in double precision of each of 15,910 numbers, next to the part that a rank updates.
    held = [run.values(1, "optimizer_bytes")[-1] for run in (fed, lost)]
    assert held[0] - held[1] == 8 * 15_910


def test_without_values_as_many_bytes_travel_for_as_long() -> None:
    real, none = (
        train("zero", 3, workload=MLP, steps=2, stage=2, compression="int8", numerics=n) for n in ("real", "none")
    )
    assert none.elapsed_s == real.elapsed_s
    assert sum(none.sizes("")) == sum(real.sizes(""))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"compression": "power_sgd"}, "compression: found power_sgd, expected another kind"),
        ({"compression": "int8", "reduce": "pairwise"}, "reduce: found pairwise, expected ring or direct"),
        ({"compression": "int9"}, "compression"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_run(settings: dict[str, Any], error: str) -> None:
    source = {"topology": {"generator": "star", "workers": 2}, "workload": "mnist_mlp", "stop": {"steps": 1}}
    with pytest.raises(UsageError, match=error):
        read_experiment(source | {"algorithm": {"name": "zero"} | settings})


def test_one_rank_compresses_nothing() -> None:
    assert check_compression({"compression": "none", "reduce": "pairwise"}) is None
    alone, small = (train("zero", 1, workload=MLP, steps=2, compression=kind) for kind in ("none", TOP))
    assert torch.equal(alone.vectors[0], small.vectors[0])
