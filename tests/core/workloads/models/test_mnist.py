"""The digits in the package: which they are, how they are dealt, and that they can be learnt."""

import hashlib

import numpy as np
import pytest
import torch

from simcluster.errors import UsageError
from simcluster.workloads import WORKLOADS, joined_batches, mnist_mlp
from simcluster.workloads.models.mnist import EMBEDDED, load_mnist


def test_the_images_in_the_package_are_those_that_its_provenance_names():
    with np.load(EMBEDDED, allow_pickle=False) as archive:
        raw = archive["images"].tobytes() + archive["labels"].tobytes()
    text = EMBEDDED.with_name("PROVENANCE.md").read_text(encoding="utf-8")
    assert len(raw) == 5000 * (784 + 1)
    assert hashlib.sha256(raw).hexdigest() in text
    assert hashlib.sha256(EMBEDDED.read_bytes()).hexdigest() in text
    assert EMBEDDED.stat().st_size < 1_200_000


def test_a_fifth_of_each_class_is_held_out_and_no_image_is_on_both_sides():
    train, test = load_mnist()
    assert torch.equal(torch.bincount(train.targets), torch.full((10,), 400))
    assert torch.equal(torch.bincount(test.targets), torch.full((10,), 100))
    rows = {row.numpy().tobytes() for row in train.inputs}
    assert not any(row.numpy().tobytes() in rows for row in test.inputs)


def test_pixels_are_standardised():
    train, _ = load_mnist()
    # By the full set's constants, so only about 0 and 1.
    assert abs(train.inputs.mean().item()) < 0.02
    assert abs(train.inputs.std().item() - 1) < 0.02


def test_five_ranks_worth_of_batches_teach_the_digits():
    workload = mnist_mlp()
    replicas = [workload.replica(rank, 5, 0, 150) for rank in range(5)]
    for batch in joined_batches(replicas):
        replicas[0].apply(replicas[0].loss_and_gradients(batch)[1])
    # Measured 0.917 to 0.927 over three seeds.
    assert replicas[0].evaluate()["accuracy"] > 0.9


@pytest.mark.parametrize(
    "setting",
    [
        {"hidden": 16},
        {"batch_size": 16},
        {"learning_rate": 0.2},
        {"momentum": 0.5},
        {"optimizer": "adamw"},
        {"clip_norm": 0.01},
        {"partition": "dirichlet"},
        {"partition": "dirichlet", "alpha": 0.05},
        {"tail": "pad"},
        {"tail": "drop"},
    ],
)
def test_every_setting_changes_what_is_trained(setting):
    def trained(**settings):
        replica = mnist_mlp(**settings).replica(1, 3, 0, 3)
        for batch in replica.batches():
            replica.apply(replica.loss_and_gradients(batch)[1])
        return replica.weights_sha256()

    without_last = dict(list(setting.items())[:-1])
    assert trained(**setting) != trained(**without_last)


def test_dirichlet_shards_hold_a_batch_even_where_classes_are_scarce():
    workload = mnist_mlp(partition="dirichlet", alpha=0.01, batch_size=50, hidden=4)
    assert min(workload.replica(rank, 40, 0, 1).shard_size for rank in range(40)) == 50


def test_momentum_with_adamw_is_refused_rather_than_ignored():
    with pytest.raises(UsageError, match=r"momentum: found 0.9, expected 0 with adamw"):
        mnist_mlp(optimizer="adamw", momentum=0.9)


def test_an_alpha_without_dirichlet_is_refused_rather_than_ignored():
    with pytest.raises(UsageError, match=r"alpha: found 0\.1, expected none with redeal, or partition: dirichlet"):
        mnist_mlp(partition="redeal", alpha=0.1)


def test_a_learning_rate_that_is_not_a_number_is_refused():
    with pytest.raises(UsageError, match="learning_rate: found nan"):
        mnist_mlp(learning_rate=float("nan"))


def test_the_table_names_each_workload_by_its_function():
    assert {name: function.__name__ for name, function in WORKLOADS.items()} == {
        "mnist_cnn": "mnist_cnn",
        "mnist_mlp": "mnist_mlp",
        "mnist_moe": "mnist_moe",
        "gpt": "gpt",
        "quadratic": "quadratic",
    }
