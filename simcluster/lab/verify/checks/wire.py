"""Checks of messages: bytes match the formula, any network works, and tensors arrive as sent.

A compressed tensor may arrive with a quantisation error, or may be exact only in the mean.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from simcluster.algorithms.facts import facts_of
from simcluster.compression import KINDS, Codec
from simcluster.documents.settings import settings_of
from simcluster.errors import RunError, UsageError
from simcluster.lab.verify.checks.learning import loss_before_and_after
from simcluster.lab.verify.running import Shape
from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import CheckFailed, NotClaimed, expect, listed
from simcluster.rng import NodeRandom, torch_stream

SENDS = 100
NEAR = 0.4
"""Limit on the error of the mean over many sends of a vector, relative to the vector's length.

The smallest compressed message has one of 8 numbers. If this number is chosen at random, the
expected error is sqrt(7 / 100) = 0.26; if it is the largest, with error feedback, the error is at
most 8 / 100.
"""

SHAPES: tuple[Shape, ...] = ("star", "line", "ring", "complete")


def formula(subject: Subject) -> str:
    """Check that all ranks together send as many tensor bytes as the formula says."""
    if subject.claim.payload_bytes is None:
        raise NotClaimed("no formula is claimed")
    told: list[str] = []
    for backend, size in product(subject.backends[:1] if subject.quick else subject.backends, subject.sizes):
        done = subject.run(size, backend=backend).ended(f"N = {size} on {backend}")
        replica = done.plan.workload.replica(0, size, done.plan.seed, 1)
        if replica.running and facts_of(done.plan.algorithm).running != "none":
            raise NotClaimed("the model has running statistics, which travel with some of the messages")
        steps = done.plan.steps
        parameters = replica.parameters
        if sum(parameter.numel() for parameter in parameters) % size:
            continue
        model = sum(parameter.nbytes for parameter in parameters)
        expected = subject.claim.payload_bytes(size, model, steps, done.plan.algorithm_settings)
        where = f"N = {size} on {backend}, {steps} steps of {model} B"
        sent = done.tensor_bytes
        expect(sent == expected, f"{where}: {sent} B sent, {expected} by the formula")
        told.append(f"{expected} B")
    if not told:
        raise NotClaimed("the model's elements cannot be divided by any of these world sizes")
    return f"N = {listed(subject.sizes)}: {', '.join(told[: len(subject.sizes)])}"


def networks(subject: Subject) -> str:
    """Check networks of all SHAPES: the weights must be equal on each, and the loss must fall.

    Weights may differ between shapes if the result depends on the order of arrival.
    """
    size = next((size for size in (4, 3, 2) if size in subject.sizes), max(subject.sizes))
    star = subject.run(size).ended(f"N = {size} on a star")
    same = True
    for shape in SHAPES:
        done = subject.run(size, shape=shape).ended(f"N = {size} on a {shape}")
        same = same and done.same_weights(star)
        differs = f"N = {size}: on a {shape} the weights differ from those on a star"
        expect(same or not subject.claim.order_free, differs)
        before, after = loss_before_and_after(done)
        expect(after < before, f"N = {size} on a {shape}: the loss goes from {before:.4g} to {after:.4g}")
    return f"N = {size} on {listed(SHAPES)}: {'the same weights to the bit' if same else 'the loss falls on each'}"


def disconnected(subject: Subject) -> str:
    """Check that a node without a path to the others is reported instead of waited for."""
    size = max(subject.sizes)
    if size < 2:
        raise NotClaimed("one rank alone is always connected")
    last = f"n{size - 1}"
    try:
        done = subject.run(size, shape="islands")
    except UsageError as refused:
        told = str(refused).splitlines()[0]
        return expect(last in told, f"refused: {told}")
    named = isinstance(done.error, RunError) and last in str(done.error)
    return expect(named, f"nothing leads to {last}, and the run ends with: {done.failure}")


def compressors(subject: Subject) -> str:
    """Check the mean error of every kind of compression.

    The check applies if the algorithm has the setting *compression*.
    """
    settings = settings_of(subject.runner.plan(subject.request()).algorithm)
    if "compression" not in [setting.name for setting in settings]:
        raise NotClaimed("it has no setting called compression")
    off = {kind: how_far_off(kind, subject.seed) for kind in sorted(KINDS)}
    wrong = [f"{kind}: {vector} arrives {far:.2g} off" for kind, (far, vector) in off.items() if not far <= NEAR]
    if wrong:
        raise CheckFailed(f"errors of the mean of {SENDS} sends, relative to the length: {'; '.join(wrong)}")
    told = listed(f"{kind} {far:.1g}" for kind, (far, _) in off.items())
    return f"the mean of {SENDS} sends is off by at most, relative to the length: {told}"


@lru_cache(maxsize=64)
def how_far_off(kind: str, seed: int) -> tuple[float, str]:
    """Return (largest relative error with compression *kind*, name of the vector with it)."""
    normal = torch.randn(2, 4, generator=torch_stream(seed, "hard to compress"))
    vectors = {
        "a normal vector": normal,
        "a vector of numbers near 1": 1 + 0.01 * normal,
        "a vector of equal numbers": torch.full((2, 4), 3.0),
    }
    found = [(_off(kind, vector, seed), name) for name, vector in vectors.items()]
    # NaN counts as infinite: max() would otherwise depend on the order.
    return max(found, key=lambda one: one[0] if one[0] == one[0] else float("inf"))


def _off(kind: str, vector: Tensor, seed: int) -> float:
    """Return the error of the mean of SENDS sends of *vector*, relative to its length."""
    codec = Codec(kind, NodeRandom(seed, "n0"), "law", [vector])
    total = torch.zeros_like(vector, dtype=torch.float64)
    for _ in range(SENDS):
        total += codec.decode(codec.encode([vector]))[0]
    meant = vector.double()
    return float((total / SENDS - meant).norm() / meant.norm())
