"""Checks that compressed tensors arrive as sent: exactly, to the quantisation error, or in the mean."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from simcluster.compression import KINDS, Codec
from simcluster.documents.settings import settings_of
from simcluster.rng import NodeRandom, torch_stream
from simcluster.verify.subject import Subject
from simcluster.verify.verdict import Failed, NotClaimed, listed

SENDS = 100
NEAR = 0.4
"""Limit on the error of the mean of a repeatedly sent vector, relative to its length.

The smallest message sends one of 8 numbers: if random, its error is sqrt(7 / 100) = 0.26; if the largest with error
feedback, at most 8 / 100.
"""


def compressors(subject: Subject) -> str:
    """Check every kind of compression that the algorithm supports."""
    settings = settings_of(subject.runner.plan(subject.request()).algorithm)
    if "compression" not in [setting.name for setting in settings]:
        raise NotClaimed("it has no setting called compression")
    off = {kind: how_far_off(kind, subject.seed) for kind in sorted(KINDS)}
    wrong = [f"{kind}: {vector} arrives {far:.2g} off" for kind, (far, vector) in off.items() if not far <= NEAR]
    if wrong:
        raise Failed(f"errors of the mean of {SENDS} sends, relative to the length: {'; '.join(wrong)}")
    told = listed(f"{kind} {far:.1g}" for kind, (far, _) in off.items())
    return f"the mean of {SENDS} sends is off by at most, relative to the length: {told}"


@lru_cache(maxsize=64)
def how_far_off(kind: str, seed: int) -> tuple[float, str]:
    """Return (the largest relative error, the vector that has it)."""
    normal = torch.randn(2, 4, generator=torch_stream(seed, "hard to compress"))
    vectors = {
        "a normal vector": normal,
        "a vector of numbers near 1": 1 + 0.01 * normal,
        "a vector of equal numbers": torch.full((2, 4), 3.0),
    }
    found = [(_off(kind, vector, seed), name) for name, vector in vectors.items()]
    return max(found, key=lambda one: one[0] if one[0] == one[0] else float("inf"))


def _off(kind: str, vector: Tensor, seed: int) -> float:
    codec = Codec(kind, NodeRandom(seed, "n0"), "law", [vector])
    total = torch.zeros_like(vector, dtype=torch.float64)
    for _ in range(SENDS):
        total += codec.decode(codec.encode([vector]))[0]
    meant = vector.double()
    return float((total / SENDS - meant).norm() / meant.norm())
