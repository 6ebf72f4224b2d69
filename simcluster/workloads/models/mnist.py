"""Handwritten digits (5,000 from the package or all 70,000 from a directory), and three networks that
classify them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import nn

from simcluster.errors import UsageError
from simcluster.workloads.data.partition import ALPHA, Tail, named_partition
from simcluster.workloads.data.samples import Samples
from simcluster.workloads.layers.experts import ExpertLayer
from simcluster.workloads.models.idx import Bytes, read_mnist_folder
from simcluster.workloads.models.image_folder import has_classes, read_image_folder
from simcluster.workloads.optimizers import PositiveFinite, named_optimizer
from simcluster.workloads.recipe import with_recipe
from simcluster.workloads.workload import Workload

EMBEDDED = Path(__file__).parent / "data" / "mnist_5k.npz"

# The mean and standard deviation of the pixels (0 to 1) of the 60,000 training images.
MEAN = 0.1307
DEVIATION = 0.3081
PIXELS, CLASSES = 784, 10


@with_recipe
def mnist_mlp(
    *,
    hidden: PositiveInt = 128,
    batch_size: PositiveInt = 32,
    learning_rate: PositiveFinite = 0.1,
    momentum: Annotated[NonNegativeFloat, Field(lt=1)] = 0.0,
    optimizer: Literal["sgd", "adamw"] = "sgd",
    clip_norm: PositiveFinite | None = None,
    partition: Literal["iid", "redeal", "dirichlet"] = "iid",
    alpha: PositiveFinite = ALPHA,
    tail: Tail = "keep",
    data: str | None = None,
) -> Workload:
    """Return a workload that trains a network for handwritten digits, with 784 inputs, *hidden*
    ReLU units and 10 outputs, by cross entropy.

    *batch_size* is the number of images per rank. *partition*: "redeal" deals the images to the
    ranks again in each epoch; "dirichlet" deals each class to the ranks in proportions drawn from
    Dirichlet(*alpha*), and every shard then has at least *batch_size* images. *tail*: "pad" and
    "drop" make shards equal in size, by repeating or by leaving out a few images in each epoch.
    *data* is a directory with MNIST's IDX files (60,000 training images and 10,000 held out), or
    with images in a directory for each class; without it, 4,000 of the package's 5,000 images are
    used for training and 1,000 are held out, 100 of each class. Raise UsageError for settings out
    of range and for files that do not fit.
    """
    return _digits(
        "mnist_mlp",
        (PIXELS + 1) * hidden + (hidden + 1) * CLASSES,
        lambda: nn.Sequential(
            nn.Linear(PIXELS, hidden),
            nn.Sequential(nn.ReLU(), nn.Dropout(0.0)),  # a recipe sets its share
            nn.Linear(hidden, CLASSES),
        ),
        data,
        batch_size=batch_size,
        optimizer=named_optimizer(optimizer, learning_rate, momentum),
        partition=named_partition(partition, tail, alpha, batch_size),
        clip_norm=clip_norm,
    )


@with_recipe
def mnist_cnn(
    *,
    channels: PositiveInt = 16,
    batch_size: PositiveInt = 32,
    learning_rate: PositiveFinite = 0.02,
    momentum: Annotated[NonNegativeFloat, Field(lt=1)] = 0.9,
    optimizer: Literal["sgd", "adamw"] = "sgd",
    clip_norm: PositiveFinite | None = None,
    partition: Literal["iid", "redeal", "dirichlet"] = "iid",
    alpha: PositiveFinite = ALPHA,
    tail: Tail = "keep",
    data: str | None = None,
) -> Workload:
    """Return a workload that trains a convolutional network for handwritten digits, by cross
    entropy.

    It has two layers of 5x5 convolutions with *channels* and twice as many channels, each with ReLU
    and 2x2 max pooling, then 10 outputs (after LeCun et al. 1998). The other settings are those of
    `mnist_mlp`. Raise UsageError for settings out of range and for files that do not fit.
    """
    weights = 26 * channels + (25 * channels + 1) * 2 * channels + (32 * channels + 1) * CLASSES
    return _digits(
        "mnist_cnn",
        weights,
        partial(_convolutions, channels),
        data,
        batch_size=batch_size,
        optimizer=named_optimizer(optimizer, learning_rate, momentum),
        partition=named_partition(partition, tail, alpha, batch_size),
        clip_norm=clip_norm,
    )


@with_recipe
def mnist_moe(
    *,
    hidden: PositiveInt = 64,
    experts: PositiveInt = 4,
    active: PositiveInt = 2,
    expert_width: PositiveInt = 64,
    batch_size: PositiveInt = 32,
    learning_rate: PositiveFinite = 0.1,
    momentum: Annotated[NonNegativeFloat, Field(lt=1)] = 0.0,
    optimizer: Literal["sgd", "adamw"] = "sgd",
    clip_norm: PositiveFinite | None = None,
    partition: Literal["iid", "redeal", "dirichlet"] = "iid",
    alpha: PositiveFinite = ALPHA,
    tail: Tail = "keep",
    data: str | None = None,
) -> Workload:
    """Return a workload that trains a small mixture of experts for handwritten digits: 784 inputs,
    *hidden* ReLU units, a layer of *experts* of which each image passes *active*, and 10 outputs.

    An expert has *expert_width* ReLU units. The other settings are those of `mnist_mlp`. Raise
    UsageError for settings out of range and for files that do not fit.
    """
    if active > experts:
        raise UsageError("active", repr(active), f"at most the {experts} experts")

    def expert() -> nn.Module:
        return nn.Sequential(nn.Linear(hidden, expert_width), nn.ReLU(), nn.Linear(expert_width, hidden))

    def model() -> nn.Module:
        router = nn.Linear(hidden, experts, bias=False)
        layer = ExpertLayer(nn.LayerNorm(hidden), router, [expert() for _ in range(experts)], active)
        activation = nn.Sequential(nn.ReLU(), nn.Dropout(0.0))  # a recipe sets its share
        return nn.Sequential(nn.Linear(PIXELS, hidden), activation, layer, nn.Linear(hidden, CLASSES))

    inner = experts * (2 * hidden * expert_width + hidden + expert_width + hidden)
    return _digits(
        "mnist_moe",
        (PIXELS + 1) * hidden + 2 * hidden + inner + (hidden + 1) * CLASSES,
        model,
        data,
        batch_size=batch_size,
        optimizer=named_optimizer(optimizer, learning_rate, momentum),
        partition=named_partition(partition, tail, alpha, batch_size),
        clip_norm=clip_norm,
    )


def _digits(name: str, weights: int, model: Callable[[], nn.Module], data: str | None, **settings: Any) -> Workload:
    """Return the workload *name*, by cross entropy, of a *model* with this number of *weights*."""
    train, test = load_mnist(data)
    return Workload(
        name=name, weights_bytes=4 * weights, value_free=True, model=model, loss=nn.functional.cross_entropy,
        train=train, test=test, **settings,
    )  # fmt: skip


def _convolutions(channels: int) -> nn.Sequential:
    """Return the network of `mnist_cnn`: 28x28 pixels become 12x12 and then 4x4."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, channels, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.0), nn.Linear(2 * channels * 4 * 4, CLASSES),
    )  # fmt: skip


@lru_cache(maxsize=2)
def load_mnist(folder: str | None = None) -> tuple[Samples, Samples]:
    """Return (training samples, held-out samples), with inputs (samples, 784) in float32 and
    targets (samples,) in int64.

    Pixels from 0 to 1 are standardised by the full training set's mean and deviation: at equal
    learning rates, 90% accuracy then takes a fifth of the steps. Every fifth image of the package
    is held out. The images are sorted by class, so 100 of each class are held out.
    """
    if folder is not None:
        reader = read_image_folder if has_classes(Path(folder)) else read_mnist_folder
        images, labels, test_images, test_labels = reader(Path(folder))
        return _samples(images, labels), _samples(test_images, test_labels)
    with np.load(EMBEDDED, allow_pickle=False) as archive:
        images, labels = archive["images"], archive["labels"]
    held_out = np.arange(len(labels)) % 5 == 4
    return _samples(images[~held_out], labels[~held_out]), _samples(images[held_out], labels[held_out])


def _samples(images: Bytes, labels: Bytes) -> Samples:
    pixels = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    standard = (pixels - np.float32(MEAN)) / np.float32(DEVIATION)
    return Samples(torch.from_numpy(standard), torch.from_numpy(labels.astype(np.int64)))
