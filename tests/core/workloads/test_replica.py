"""A node's replica: gradients, steps, batches, costs, evaluation, hashes."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from simcluster.workloads import Batch, Workload, adamw, sgd, weights_sha256
from tests.core.workloads.replicas import dropping_out, equal, normalised, replica_of, some_data, train

# Batches


def test_every_iterator_yields_the_same_batches_and_exactly_as_many_as_there_are_steps():
    replica = replica_of(steps=7)
    first, second = list(replica.batches()), list(replica.batches())
    assert [batch.step for batch in first] == list(range(7))
    for one, other in zip(first, second, strict=True):
        assert len(one) == 8
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)


def test_each_pass_uses_every_sample_of_the_shard_once_in_another_order():
    # 40 numbered samples, 2 ranks of 20: five batches of 8 are two passes, and the third spans both.
    numbered = (torch.arange(40.0).reshape(40, 1), torch.zeros(40, 1))
    replica = replica_of(lambda: nn.Linear(1, 1), train=numbered, loss=nn.functional.mse_loss, steps=5)
    used = torch.cat([batch.inputs for batch in replica.batches()]).flatten().tolist()
    assert sorted(used[:20]) == sorted(used[20:])
    assert len(set(used[:20])) == 20
    assert used[:20] != used[20:]


def test_ranks_use_samples_of_their_own_and_together_all():
    seen = []
    numbered = (torch.arange(40.0).reshape(40, 1), torch.zeros(40, 1))
    for rank in range(4):
        replica = replica_of(lambda: nn.Linear(1, 1), train=numbered, rank=rank, size=4, batch_size=5, steps=2)
        seen += torch.cat([batch.inputs for batch in replica.batches()]).flatten().tolist()
    assert sorted(seen) == list(range(40))


# Weights


def test_dropped_weights_are_nan_with_their_hash_until_others_are_loaded() -> None:
    replica = replica_of(lambda: nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last))  # type: ignore[call-overload]
    before, strides = replica.snapshot(), [weight.stride() for weight in replica.parameters]
    sha256 = replica.weights_sha256()
    replica.drop_weights()
    replica.drop_weights()
    assert replica.weights_sha256() == sha256
    assert all(weight.isnan().all() for weight in replica.parameters)
    assert replica.weights_sha256() != sha256
    replica.load(before)
    assert replica.weights_sha256() == sha256
    assert [weight.stride() for weight in replica.parameters] == strides


def test_weights_that_share_memory_are_not_dropped() -> None:
    def tied() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight.data = model[0].weight.data
        return model

    replica = replica_of(tied)
    before = replica.snapshot()
    replica.drop_weights()
    assert equal(replica.parameters, before)


def test_apply_changes_neither_its_gradients_nor_a_snapshot():
    replica = replica_of(clip_norm=0.01)
    kept = replica.snapshot()
    copies = [parameter.clone() for parameter in replica.parameters]
    gradients = [torch.ones_like(parameter) for parameter in replica.parameters]
    replica.apply(gradients)
    assert equal(gradients, [torch.ones_like(parameter) for parameter in replica.parameters])
    assert equal(kept, copies)
    assert not equal(kept, replica.parameters)


def test_clipping_scales_the_joint_norm_down_and_never_up():
    # 18 + 3 ones have the norm sqrt(21); clipped to 1 and stepped by 0.1, the weights move by 0.1 in all.
    def moved(clip_norm: float | None) -> float:
        replica = replica_of(clip_norm=clip_norm)
        before = replica.snapshot()
        replica.apply([torch.ones_like(parameter) for parameter in replica.parameters])
        return math.sqrt(sum((a - b).square().sum().item() for a, b in zip(before, replica.parameters, strict=True)))

    assert moved(1.0) == pytest.approx(0.1, rel=1e-5)
    assert moved(None) == pytest.approx(0.1 * math.sqrt(21), rel=1e-5)
    assert moved(100.0) == pytest.approx(0.1 * math.sqrt(21), rel=1e-5)


def test_load_overwrites_in_place_and_training_goes_on_from_there():
    source, target = replica_of(), replica_of(rank=1)
    train(source)
    live = target.parameters[0]
    target.load(source.snapshot())
    assert target.parameters[0] is live
    assert target.weights_sha256() == source.weights_sha256()
    batch = next(source.batches())
    assert source.loss_and_gradients(batch)[0] == target.loss_and_gradients(batch)[0]


@pytest.mark.parametrize("verb", ["load", "apply", "evaluate_weights"])
def test_tensors_of_another_number_or_shape_are_refused_by_name(verb):
    replica = replica_of(test=some_data(9))
    before = replica.snapshot()
    with pytest.raises(ValueError, match=r"1 (parameters|gradients), but the model has 2 parameters"):
        getattr(replica, verb)(before[:1])
    with pytest.raises(ValueError, match=r"bias has shape \(3,\), got \(1,\)"):
        getattr(replica, verb)([before[0], torch.zeros(1)])
    assert equal(replica.parameters, before)


# Costs


def test_counting_costs_changes_nothing_of_the_replica():
    def run(counted: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        replica = replica_of(lambda: nn.Sequential(normalised(), nn.Dropout(0.1)), optimizer=adamw(0.01))
        for batch in replica.batches():
            if counted:
                assert replica.gradient_cost(batch).flops > 0
                assert replica.apply_cost().flops > 0
            replica.apply(replica.loss_and_gradients(batch)[1])
        return replica.state(), torch.get_rng_state()

    torch.manual_seed(0)
    state, generator = run(counted=False)
    torch.manual_seed(0)
    counted_state, counted_generator = run(counted=True)
    assert list(state) == list(counted_state)
    assert equal(state.values(), counted_state.values())
    assert torch.equal(generator, counted_generator)


def test_cost_follows_the_batch_and_is_counted_once_for_all_replicas():
    calls = []

    def model() -> nn.Module:
        calls.append("made")
        return nn.Linear(6, 3)

    workload = Workload(model=model, loss=cross_entropy, train=some_data(), optimizer=sgd(0.1), batch_size=8)
    replicas = [workload.replica(rank, 2, 0, 1) for rank in range(2)]
    small, large = Batch(*some_data(8)), Batch(*some_data(16))
    costs = [replica.gradient_cost(batch) for replica in replicas for batch in (small, large)]
    # Forward and the weight's gradient: 2 * batch * 6 * 3 each.
    assert [cost.flops for cost in costs] == [4 * 8 * 18, 4 * 16 * 18] * 2
    assert costs[0].memory_bytes < costs[1].memory_bytes
    # Two replicas' own, and one for each shape counted.
    assert len(calls) == 4


# Evaluation


@pytest.mark.parametrize("model", [dropping_out, normalised])
def test_evaluation_disturbs_no_training(model):
    quiet, watched = replica_of(model), replica_of(model, test=some_data(9))
    train(quiet)
    for batch in watched.batches():
        gradients = watched.loss_and_gradients(batch)[1]
        assert watched.evaluate() == watched.evaluate()
        watched.apply(gradients)
    assert equal(quiet.state().values(), watched.state().values())


def test_evaluation_sees_running_means_and_the_weights_it_is_given():
    replica = replica_of(normalised, test=some_data(9))
    fresh, start = replica.evaluate(), replica.snapshot()
    train(replica)
    trained = replica.evaluate()
    assert trained["loss"] < fresh["loss"]
    # The old weights among the new running means: neither of both.
    assert replica.evaluate_weights(start)["loss"] not in (fresh["loss"], trained["loss"])
    assert replica.evaluate() == trained


def test_there_is_no_accuracy_without_classes_and_nothing_without_held_out_samples():
    inputs, _ = some_data()
    regression = replica_of(loss=nn.functional.mse_loss, train=(inputs, inputs[:, :3]), test=(inputs, inputs[:, :3]))
    assert list(regression.evaluate()) == ["loss"]
    assert replica_of().evaluate() == {}


# State and hashes


def test_state_holds_weights_buffers_and_the_optimizers_memory_as_copies():
    replica = replica_of(normalised, optimizer=adamw(0.01))
    train(replica)
    state = replica.state()
    # Two layers of 2, the normalisation's 2 and 3 running values; Adam's step and two moments of each weight.
    assert len([key for key in state if key.startswith("model.")]) == 9
    assert len([key for key in state if key.startswith("optimizer.")]) == 6 * 3
    assert state["optimizer.0.weight.step"].item() == 7
    state["model.0.weight"].zero_()
    assert not torch.equal(replica.parameters[0], state["model.0.weight"])


def test_the_hash_tells_names_dtypes_shapes_and_bytes_apart():
    ones = torch.ones(2, 3)
    hashes = [
        weights_sha256(["w"], [ones]),
        weights_sha256(["v"], [ones]),
        weights_sha256(["w"], [ones.reshape(3, 2)]),
        weights_sha256(["w"], [ones.view(torch.int32)]),
        weights_sha256(["w"], [-ones]),
        weights_sha256(["w", "x"], [ones, ones]),
    ]
    assert len(set(hashes)) == len(hashes)
    assert weights_sha256(["w"], [torch.ones(3, 2).t()]) == hashes[0]
    assert len(weights_sha256(["a", "b"], [torch.tensor(1.0), torch.ones(2, dtype=torch.bfloat16)])) == 64
