"""The block `observe` of an experiment: what is looked at while nodes train, off the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcluster.documents.reading import Reading
from simcluster.errors import nearest
from simcluster.workloads.workload import Numerics

KEYS = ("gradient_norms",)
IN_PARTS = ("pipeline", "tensor_parallel")
"""Algorithms in which no rank has a gradient of the whole model."""


def read_observe(reading: Reading, algorithm: Mapping[str, Any], numerics: Numerics) -> bool:
    """Whether gradient norms are wanted."""
    block = reading.document.data.get("observe")
    if block is None:
        return False
    if not isinstance(block, dict):
        reading.bad(("observe",), "a mapping: gradient_norms")
        return False
    for key in block:
        if key not in KEYS:
            reading.bad(("observe", key), nearest(str(key), KEYS), "unknown key", at_key=True)
    wanted = block.get("gradient_norms", False)
    key = ("observe", "gradient_norms")
    if not isinstance(wanted, bool):
        reading.bad(key, "true or false")
        return False
    if wanted and numerics == "none":
        reading.bad(key, "numerics: real beside it, since without there are no gradients")
    elif wanted and algorithm.get("name") in IN_PARTS:
        reading.bad(key, "false: in this algorithm no rank has a gradient of the whole model")
    elif wanted and algorithm.get("bucket_bytes") is not None:
        reading.bad(key, "no algorithm.bucket_bytes beside it: its buckets leave before the gradient is whole")
    return bool(wanted)
