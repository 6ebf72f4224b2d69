"""A small model of ours is sketched on values: with every setting, everything is as without values, to the bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from simcluster.errors import UsageError
from simcluster.workloads import Batch, Workload, gpt, mnist_mlp, quadratic
from simcluster.workloads.costs.sketch import Sketch
from simcluster.workloads.costs.small import MOST_BYTES, MOST_PRODUCTS, SmallSketch, is_small
from simcluster.workloads.layers.activations import joint_bytes
from simcluster.workloads.layers.layers import modules_in_order
from tests.support.root import ROOT

MAKERS: list[Callable[[], Workload]] = [
    mnist_mlp,
    partial(mnist_mlp, hidden=1, batch_size=1),
    partial(mnist_mlp, momentum=0.9, clip_norm=1.0),
    partial(mnist_mlp, optimizer="adamw", batch_size=7),
    partial(mnist_mlp, partition="dirichlet"),
    quadratic,
    partial(quadratic, dtype="float64", features=1),
    partial(quadratic, features=64, samples=40, batch_size=3),
    gpt,
    partial(gpt, batch_size=1, clip_norm=None),
    partial(gpt, optimizer="sgd", momentum=0.9, batch_size=2),
    partial(gpt, kv_heads=2, feed_forward=96, batch_size=2),
    partial(gpt, layers=1, width=32, heads=2, context=8, tied=False, batch_size=3),
    partial(gpt, tokenizer="bpe", vocabulary=300, context=16, batch_size=2),
    partial(gpt, precision="bf16", dropout=0.1, batch_size=2),
]
IDS = [f"{getattr(make, 'func', make).__name__} {getattr(make, 'keywords', {})}" for make in MAKERS]


def both(workload: Workload) -> list[Sketch]:
    making = workload.made_model, workload.loss_function, workload.make_optimizer()
    facts = partial(type(workload._counted), draws=False)
    return [
        kind(*making, workload.clip_norm, workload.name, facts(), workload.recipe.precision)
        for kind in (Sketch, SmallSketch)
    ]


def held(sketch: Sketch, batch: Batch) -> list[int]:
    return [joint_bytes([each]) for each in sketch.held(batch)]


def of_two(sketch: Sketch, what: str, batch: Batch) -> Any:
    """What two tensor-parallel ranks would have, or why they cannot."""
    try:
        if what == "shares":
            return sketch.shares(batch, 2)
        return [joint_bytes([each]) for each in sketch.held_by_share(batch, 2)]
    except UsageError as error:
        return str(error)


def outputs(sketch: Sketch, batch: Batch) -> list[tuple[torch.Size, torch.dtype]]:
    found, value = [], batch.inputs
    for place, module in enumerate(modules_in_order(sketch.model)):
        value = sketch.output_of([module], place, value)
        assert value.is_meta
        found.append((value.shape, value.dtype))
    return found


def shapes(state: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {name: (value.shape, value.dtype, value.device) for name, value in state.items()}


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_everything_that_is_counted_on_values_is_what_is_counted_without(make: Callable[[], Workload]) -> None:
    workload = make()
    none, small = both(workload)
    batch, data = workload._a_batch(), [workload.train_samples]
    assert isinstance(workload.sketch, SmallSketch)
    assert small.names == none.names
    assert [p.shape for p in small.parameters] == [p.shape for p in none.parameters]
    assert all(p.is_meta for p in small.parameters)
    assert small.gradient(batch) == none.gradient(batch)
    assert small.apply(small.parameters) == none.apply(none.parameters)
    assert small.memory(batch, data) == none.memory(batch, data)
    assert small.layers(batch) == none.layers(batch)
    assert held(small, batch) == held(none, batch)
    assert outputs(small, batch) == outputs(none, batch)
    for part in ([], small.parameters[:1], small.parameters):
        assert small.part(part) == none.part(part)
    for stepped in (False, True):
        assert shapes(small.state(stepped=stepped)) == shapes(none.state(stepped=stepped))
    for what in ("shares", "held"):
        assert of_two(small, what, batch) == of_two(none, what, batch)


def test_the_sketch_on_values_draws_nothing_from_the_generator_of_others() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    workload = mnist_mlp()
    workload.sketch.gradient(workload._a_batch())
    assert torch.equal(before, torch.get_rng_state())


def test_a_model_is_small_up_to_a_size_and_an_amount_of_work() -> None:
    assert is_small(MOST_BYTES, 1)
    assert not is_small(MOST_BYTES + 1, 1)
    # 1,024 bytes are 256 weights.
    assert is_small(1024, MOST_PRODUCTS // 256)
    assert not is_small(1024, MOST_PRODUCTS // 256 + 1)


def test_large_models_and_batches_joined_of_many_ranks_are_counted_without_values() -> None:
    assert type(gpt(size="125m", batch_size=1).sketch) is Sketch
    assert type(mnist_mlp(hidden=100_000).sketch) is Sketch
    workload = mnist_mlp()
    # 101,770 weights times 32 samples: 164 ranks have 534 million products together, 165 have 537.3, above 2^29.
    for ranks, kind in ((164, SmallSketch), (165, Sketch)):
        replica = workload.replica(0, ranks, 0, 1, numerics="none")
        assert type(replica._counter) is kind


@pytest.mark.slow
def test_an_experiment_that_is_only_timed_does_not_load_the_compiler(tmp_path: Path) -> None:
    code = (
        "import sys, simcluster; simcluster.run('quickstart', overrides={'stop.steps': 2, 'numerics': 'none'},"
        f" out={str(tmp_path / 'run')!r}, report=False);"
        "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
