"""The settings of every workload: what they do to optimizer, model and arithmetic, and that runs resume with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.runs.record import RunRecord
from simcluster.workloads import Workload, gpt, mnist_mlp, quadratic, sgd, train_alone
from simcluster.workloads.recipe import TrainingRecipe
from tests.core.workloads.replicas import dropping_out, equal, some_data, train
from tests.core.workloads.test_schedules import SETTINGS, weights
from tests.support.kept import MNIST, config, hashes, play, play_on
from tests.support.levels import sample_of
from tests.support.root import ROOT

COSINE = {"kind": "cosine", "warmup_steps": 2, "min_learning_rate": 0.001}
WHOLE = {"schedule": COSINE, "weight_decay": 0.1, "dropout": 0.2, "precision": "bf16"}
RECIPE = {**MNIST, **WHOLE}
SMALL = {"layers": 1, "width": 32, "heads": 4, "context": 8, "batch_size": 2}
INEXACT = ("ad_psgd", "async_diloco", "edp", "easgd", "fedbuff", "k_async", "softsync")


def own(**recipe: Any) -> Workload:
    data = some_data()
    loss = nn.functional.cross_entropy
    return Workload(dropping_out, loss, data, sgd(0.1), 8, recipe=TrainingRecipe(**recipe))


def test_weight_decay_and_scale_are_those_of_every_optimizer() -> None:
    # On 4 ranks: linear 4 x 0.1, root 2 x 0.1. SGD decays by the rate times 0.3 of each weight.
    for scale, rate in (("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)):
        replica = own(scale=scale, weight_decay=0.3).replica(0, 4, 0, 1)
        before = replica.snapshot()
        replica.apply([torch.zeros_like(weight) for weight in before])
        assert replica.learning_rate == pytest.approx(rate)
        for mine, old in zip(replica.parameters, before, strict=True):
            assert torch.allclose(mine, old * (1 - rate * 0.3), atol=1e-7)


def test_dropout_is_that_of_the_models_modules_and_of_training_alone() -> None:
    replica = own(dropout=0.25).replica(0, 1, 0, 1)
    assert [module.p for module in replica._model.modules() if isinstance(module, nn.Dropout)] == [0.25]
    # 16,384 hidden units: the share that is dropped is within 4 deviations, 4 sqrt(0.25 x 0.75 / 16384) = 0.0135.
    hidden = mnist_mlp(hidden=4096, batch_size=4, dropout=0.25).replica(0, 1, 0, 1)._model[1]
    outputs = hidden(torch.ones(4, 4096))
    assert float((outputs == 0).float().mean()) == pytest.approx(0.25, abs=0.0135)
    assert sorted(outputs.unique().tolist()) == pytest.approx([0, 4 / 3])
    assert torch.equal(hidden.eval()(torch.ones(4, 4096)), torch.ones(4, 4096))
    lstm = Workload(lambda: nn.LSTM(4, 4, 2), None, some_data(), sgd(0.1), 8, recipe=TrainingRecipe(dropout=0.5))
    assert lstm.made_model().dropout == 0.5
    with pytest.raises(UsageError, match="a model without dropout"):  # it drops between layers, so not in one
        replace(lstm, model=lambda: nn.LSTM(4, 4, 1)).made_model()
    # A GPT's halves are made anew for each pass, and must follow the model's mode.
    model = gpt(**SMALL, dropout=0.5).replica(0, 1, 0, 1)._model
    tokens = torch.zeros(1, 8, dtype=torch.uint8)
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


def test_masks_depend_on_seed_rank_and_step_alone() -> None:
    def loss(rank: int, seed: int, step: int) -> float:
        replica = own().replica(rank, 2, seed, 4)
        return replica.loss_and_gradients(replace(next(own().replica(0, 2, 0, 4).batches()), step=step))[0]

    assert loss(0, 0, 1) == loss(0, 0, 1)
    assert len({loss(0, 0, 1), loss(0, 0, 2), loss(1, 0, 1), loss(0, 1, 1)}) == 4


def test_bf16_computes_products_in_bfloat16_and_keeps_the_rest_in_float32() -> None:
    plain, half = (gpt(**SMALL, precision=precision).replica(0, 1, 0, 3) for precision in ("f32", "bf16"))
    products: list[torch.dtype] = []
    half._model.blocks[0].up.register_forward_hook(lambda _, __, out: products.append(out.dtype))
    batch = half.first_batch()
    loss, gradients = half.loss_and_gradients(batch)
    assert products == [torch.bfloat16]
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    assert loss != plain.loss_and_gradients(batch)[0]
    assert loss == pytest.approx(plain.loss_and_gradients(batch)[0], rel=2**-7)  # bfloat16 has 8 bits
    train(half)
    assert {weight.dtype for weight in half.state().values() if weight.is_floating_point()} == {torch.float32}


def test_layers_in_bf16_give_the_bits_of_the_whole_model() -> None:
    replica = gpt(**SMALL, precision="bf16").replica(0, 1, 0, 1)
    batch = replica.first_batch()
    loss, gradients = replica.loss_and_gradients(batch)
    layers, stream = replica.layers(), batch.inputs
    for layer in layers[:-1]:
        stream = layer.forward(stream)
    assert layers[-1].loss(stream, batch.targets) == loss
    sums = [torch.zeros_like(weight) for weight in replica.parameters]
    above = None
    for layer in reversed(layers):
        above, found = layer.backward(above)
        for place, gradient in zip(layer.parameters, found, strict=True):
            sums[place] += gradient
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(sums, gradients, strict=True))


def test_bf16_moves_fewer_bytes_and_as_many_flops_timed_or_computed() -> None:
    costs = {}
    for precision in ("f32", "bf16"):
        workload = gpt(precision=precision, batch_size=2)
        real, timed = (workload.replica(0, 1, 0, 1, numerics=numerics) for numerics in ("real", "none"))
        costs[precision] = real.gradient_cost(real.first_batch())
        assert costs[precision] == timed.gradient_cost(timed.first_batch())
    assert costs["bf16"].flops == costs["f32"].flops
    assert costs["bf16"].memory_bytes < costs["f32"].memory_bytes
    assert costs["bf16"].kind == "gpt.bf16/gradient"  # a profile measured the time in float32


@pytest.mark.parametrize("in_parts", [False, True])
def test_training_begins_with_the_weights_of_a_file(in_parts: bool, tmp_path: Path) -> None:
    trained = gpt(**SMALL).replica(0, 1, 5, 2)
    train(trained)
    file = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(dict(zip(trained.names, trained.snapshot(), strict=True)), file)
    workload = gpt(**SMALL, weights=str(file))
    begun = workload.replica(0, 2, 9, 2, in_parts=in_parts)
    assert begun.is_in_parts == in_parts
    assert equal(begun.parameters, trained.parameters)
    assert workload.digests[:2] == gpt(**SMALL).digests
    assert len(workload.digests) == 3


def test_weights_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    wrong = {"weight": torch.zeros(1, 3), "bias": torch.zeros(1)}
    safetensors.torch.save_file(wrong, file)
    for numerics in ("real", "none"):
        with pytest.raises(UsageError) as error:
            quadratic(features=8, weights=str(file)).replica(0, 1, 0, 1, numerics=numerics)
        assert "weight: found shape [1, 3], expected [1, 8], that of the model" in str(error.value)
        assert "bias: found a tensor that the model lacks" in str(error.value)
    file.write_bytes(b"no safetensors")
    with pytest.raises(UsageError, match="expected a safetensors file, or the directory of a run"):
        quadratic(weights=str(file)).replica(0, 1, 0, 1)


def test_a_run_goes_on_from_the_weights_of_another_run(tmp_path: Path) -> None:
    block = {"name": "quadratic", "batch_size": 4}
    keys: dict[str, Any] = {"topology": {"generator": "star", "workers": 2}, "algorithm": "all_reduce_dp"}
    first = simcluster.run(**keys, workload=block, stop={"steps": 4}, out=tmp_path / "first", report=False)
    more = {**block, "weights": str(tmp_path / "first"), "learning_rate": 1e-12}
    second = simcluster.run(**keys, workload=more, stop={"steps": 1}, out=tmp_path / "second", report=False)
    for name, value in first.weights().items():
        assert torch.allclose(second.weights()[name], value, atol=1e-6)
    assert second.config["workload"]["weights"].endswith("first/checkpoints/final.safetensors")
    assert "schedule" not in second.config["workload"]  # defaults are left out, so that old checkpoints still fit


def test_a_default_that_is_given_replaces_the_workloads_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from tests.core.workloads.test_recipe import own\n\ndef mine():\n"
        "    return own(schedule='cosine', precision='bf16', scale='linear', weight_decay=0.5, dropout=0.5)\n"
    )
    plain = {"schedule": "constant", "precision": "f32", "scale": "none", "weight_decay": None, "dropout": None}
    keys = {"topology": {"generator": "star", "workers": 2}, "algorithm": "all_reduce_dp", "stop": {"steps": 2}}
    for given, expected in (({}, own(scale="linear").recipe), (plain, own().recipe)):
        plan = read_experiment({**keys, "workload": {"path": f"{tmp_path}/mine.py:mine", **given}})
        assert plan.workload.recipe.scale == expected.scale
        assert (plan.workload.recipe == expected) is bool(given)
        assert {key: value for key, value in plan.document["workload"].items() if key != "path"} == given


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: quadratic(dropout=0.1), "dropout: found 0.1, and a model without dropout"),
        (lambda: quadratic(dtype="float64", precision="bf16"), "precision: found bf16, and weights of torch.float64"),
        (
            lambda: Workload(
                dropping_out, nn.functional.cross_entropy, some_data(), lambda p: torch.optim.Rprop(p), 8,
                recipe=TrainingRecipe(weight_decay=0.1),
            ),
            "weight_decay: found a Rprop, which has no weight_decay",
        ),
        (
            lambda: Workload(
                dropping_out, nn.functional.cross_entropy, some_data(),
                lambda p: (one := sgd(0.1)(p), ExponentialLR(one, 0.5)), 8, recipe=TrainingRecipe(scale="linear"),
            ),
            "scale: found an optimizer that comes with its scheduler",
        ),
        (
            lambda: Workload(
                dropping_out, nn.functional.cross_entropy, some_data(), sgd(0.1), 8,
                schedule=lambda one: ExponentialLR(one, 0.5), recipe=TrainingRecipe(schedule="cosine"),
            ),
            "schedule: found a second schedule",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("numerics", ["real", "none"])
def test_what_cannot_be_honoured_is_refused(make: Any, expected: str, numerics: Any) -> None:
    with pytest.raises(UsageError, match=expected):
        make().replica(0, 2, 0, 3, numerics=numerics)


def test_many_ranks_follow_the_schedule_decay_and_scale_of_one_process(tmp_path: Path) -> None:
    block = {**MNIST, "optimizer": "sgd", "schedule": COSINE, "weight_decay": 0.1, "scale": "linear"}
    settings = {key: value for key, value in block.items() if key != "name"}
    alone = train_alone(mnist_mlp(**settings), 4, 3, 8)
    plain = train_alone(mnist_mlp(**settings | {"schedule": "constant"}), 4, 3, 8)
    names = mnist_mlp(**settings).replica(0, 4, 3, 1).names
    found = weights(play(config("all_reduce_dp", block), tmp_path))
    assert all(torch.allclose(found[name], value, atol=1e-6) for name, value in zip(names, alone, strict=True))
    assert not all(torch.allclose(a, b, atol=1e-4) for a, b in zip(alone, plain, strict=True))


def test_many_ranks_drop_as_one_process_that_draws_for_each_of_them(tmp_path: Path) -> None:
    # One process on the joined batch draws once; what holds is: the mean over ranks of gradients, each with the
    # mask of its rank and step.
    replicas = [mnist_mlp(hidden=8, batch_size=4, dropout=0.3).replica(rank, 4, 3, 5) for rank in range(4)]
    for batches in zip(*(replica.batches() for replica in replicas), strict=True):
        pairs = zip(replicas, batches, strict=True)
        each = [replica.loss_and_gradients(batch)[1] for replica, batch in pairs]
        mean = [torch.stack(parts).mean(0) for parts in zip(*each, strict=True)]
        for replica in replicas:
            replica.apply(mean)
    block = {"name": "mnist_mlp", "hidden": 8, "batch_size": 4, "dropout": 0.3}
    found = weights(play(config("all_reduce_dp", block, steps=5), tmp_path))
    for name, value in zip(replicas[0].names, replicas[0].parameters, strict=True):
        assert torch.allclose(found[name], value, atol=1e-6)


def test_ranks_of_a_split_model_drop_the_same_of_what_all_of_them_hold() -> None:
    shards = [gpt(**SMALL, dropout=0.4).replica(rank, 2, 0, 1).tensor_shard() for rank in (0, 1)]
    tokens = torch.arange(16).view(2, 8)
    streams = [shard.pieces[0].whole.forward(tokens) for shard in shards]  # embeddings
    assert torch.equal(*streams)
    terms = []
    for shard, stream in zip(shards, streams, strict=True):
        normed = shard.pieces[1].whole.forward(stream)
        terms.append(shard.pieces[1].shard.forward(normed))  # a rank's term of the sum after attention
    assert not torch.equal(*terms)
    assert torch.equal(terms[0] == 0, terms[1] == 0)
    assert 0 < float((terms[0] == 0).float().mean()) < 1


@pytest.mark.slow
def test_ranks_of_a_split_model_record_the_same_losses(tmp_path: Path) -> None:
    found = simcluster.run(
        topology={"generator": "star", "workers": 2}, stop={"steps": 3}, out=tmp_path / "run", report=False,
        algorithm={"name": "tensor_parallel", "gather_interval": 1},
        workload={"name": "gpt", **SMALL, "dropout": 0.4, "precision": "bf16"},
    )  # fmt: skip
    rows = found.metrics[found.metrics["name"] == "loss"]
    each = [list(rows[rows["node"] == node]["value"]) for node in sorted(set(rows["node"]))]
    assert len(each) == 2
    assert len(each[0]) == 3
    assert each[0] == each[1]


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "edp"},  # the server takes 12 steps, one for each push
        {"name": "k_async", "k": 2, "batch": True},  # 6, two pushes each
        {"name": "ssp", "staleness": 0},  # 4, one for each barrier
        {"name": "edp", "push": "weights"},  # every rank steps by itself
    ],
    ids=str,
)
def test_a_schedule_lasts_for_a_run_whoever_steps(algorithm: dict[str, Any], tmp_path: Path) -> None:
    # 3 ranks, 4 batches each: whatever the server's steps, the rates are those of 4 steps.
    found = simcluster.run(
        topology={"generator": "star", "workers": 3}, algorithm=algorithm, stop={"steps": 4}, out=tmp_path / "run",
        workload={"name": "quadratic", "batch_size": 4, "learning_rate": 0.04, "schedule": "linear"},
        observe={"learning_rate": True}, report=False,
    )  # fmt: skip
    rows = found.metrics[(found.metrics["name"] == "observed_learning_rate") & (found.metrics["node"] == "n0")]
    assert list(dict.fromkeys(rows["value"])) == pytest.approx([0.04, 0.03, 0.02, 0.01])


@pytest.mark.parametrize("algorithm", ["all_reduce_dp", "tensor_parallel"])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(algorithm: str, tmp_path: Path) -> None:
    whole = play(config(algorithm, RECIPE, **SETTINGS.get(algorithm, {})), tmp_path, {"checkpoint": {"every": 5}})
    assert hashes(play_on(tmp_path, 5)) == hashes(whole)


def rates_of(record: RunRecord) -> dict[int, float]:
    """The rate of rank 0 by step."""
    return {one.step: one.value for one in record.nodes[0].metrics if one.name == "observed_learning_rate"}


@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_a_run_that_resumes_on_fewer_ranks_has_the_rate_of_their_joined_batch(schedule: str, tmp_path: Path) -> None:
    # The rate is 4 x 0.02 on four ranks, 2 x 0.02 on two; of step 5 of 8, 1/2.
    block = {"name": "quadratic", "batch_size": 4, "learning_rate": 0.02, "scale": "linear", "schedule": schedule}
    more = {"checkpoint": {"every": 4}, "observe": {"learning_rate": True}}
    play(config("all_reduce_dp", block), tmp_path, more)
    two = {"topology": {"generator": "star", "workers": 2}}
    rest = play_on(tmp_path, 4, two)
    assert rates_of(rest)[5] == pytest.approx(0.04 if schedule == "constant" else 0.02)


def test_a_shorter_last_round_counts_its_own_batches(tmp_path: Path) -> None:
    # Rounds of 4 and 2 batches; a longer run goes on after 6 batches, at the rate 0.02 x 0.5^6, with batches 7 and 8.
    falls = {"kind": "step", "gamma": 0.5, "every": 1}
    block = {"name": "quadratic", "batch_size": 4, "learning_rate": 0.02, "schedule": falls}
    more = {"checkpoint": {"every": 6}, "observe": {"learning_rate": True}}
    play(config("all_reduce_dp", block, steps=6, accumulate=4), tmp_path, more)
    rates = rates_of(play_on(tmp_path, 6, {"stop.steps": 8}))
    assert list(rates.values()) == pytest.approx([0.02 / 64])


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ({"name": "k_sync", "k": 2, "batch": True}, "or no k, batch"),
        ({"name": "sync_ps", "wait_for": 2}, "or no wait_for"),
        ({"name": "easgd"}, "or one of all_reduce_dp"),
    ],
)
def test_what_does_not_join_all_batches_says_which_settings_are_in_the_way(algorithm: Any, said: str) -> None:
    block = {"name": "quadratic", "scale": "sqrt"}
    with pytest.raises(UsageError, match=said):
        read_experiment(config("", block) | {"algorithm": algorithm})
    read_experiment(config("k_sync", block, k=4))  # all of the ranks
    read_experiment(config("expert_parallel", {"name": "gpt", **SMALL, "experts": 4, "scale": "sqrt"}))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sample_of(sorted(ALGORITHMS)))
def test_every_algorithm_trains_and_resumes_with_the_whole_recipe(algorithm: str, tmp_path: Path) -> None:
    settings = SETTINGS.get(algorithm, {})
    block = {"name": "gpt", **SMALL, **({"experts": 4} if algorithm == "expert_parallel" else {})}
    whole = play(config(algorithm, block | WHOLE, **settings), tmp_path, {"checkpoint": {"every": 4}})
    plain = play(config(algorithm, block, **settings), tmp_path / "other")
    rest = play_on(tmp_path, 4)
    assert hashes(whole)[0] != hashes(plain)[0]
    if algorithm not in INEXACT:
        assert hashes(rest) == hashes(whole)


@pytest.mark.slow
def test_the_seeds_gpt_runs_smaller_with_the_same_bits_on_both_backends(tmp_path: Path) -> None:
    small = {"layers": 1, "width": 32, "context": 16, "feed_forward": 64, "batch_size": 2, "vocabulary": 260}
    changes: dict[str, Any] = {f"workload.{key}": value for key, value in small.items()}
    changes |= {"stop": {"steps": 3}, "workload.schedule.warmup_steps": 1}
    file = ROOT / "experiments" / "seeds" / "gpt.yaml"
    runs = [
        simcluster.run(str(file), backend=backend, overrides=changes, out=tmp_path / backend, report=False)
        for backend in ("sim", "sockets")
    ]
    assert runs[0].summary["weights_sha256"] == runs[1].summary["weights_sha256"]
    block = runs[0].config["workload"]
    assert (block["dropout"], block["weight_decay"], block["clip_norm"]) == (0.1, 0.01, 1.0)
    assert block["schedule"] == {"kind": "cosine", "warmup_steps": 1, "min_learning_rate": 6e-5}
