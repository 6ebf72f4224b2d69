"""Tiny seeded decoders."""

from __future__ import annotations

import torch

from simcluster.lm.models.architecture import Architecture
from simcluster.rng import torch_stream

LLAMA = Architecture(4, 24, 6, 2, 4, 40, 50, 32, gated=True, tied=False, rope_base=1e4)
HALVES = Architecture(4, 24, 6, 2, 4, 40, 50, 32, gated=True, tied=True, rope_base=1e4, pairs="half")
GPT = Architecture(4, 24, 4, 4, 6, 96, 50, 32, gated=False, tied=True)
ALL = {"llama": LLAMA, "halves": HALVES, "gpt": GPT}


def tensors(a):
    """Return seeded tensors of *a*, by (name, layer)."""
    generator = torch_stream(7, "tiny")
    whole = ["embedding", "position", "norm", "output"]
    names = [(name, None) for name in whole] + [(name, i) for i in range(a.layers) for name in a.layer_names()]
    return {
        key: torch.randn(a.shapes(key[0]), generator=generator) * 0.3 + (1 if key[0].startswith("norm") else 0)
        for key in names
    }


def reader(a):
    """Return what reads those tensors."""
    all_tensors = tensors(a)
    return lambda name, layer, first, last: all_tensors[name, layer][first:last]
