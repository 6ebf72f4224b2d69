"""The formats of weights: one vocabulary for all commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from simcluster.errors import Problem, UsageError, nearest

FORMATS: Final[Mapping[str, float]] = {"f32": 4.0, "bf16": 2.0, "f16": 2.0, "int8": 1.0, "q4": 18 / 32}
"""Format -> its bytes per weight. int8 has a scale per row, which hardly counts; q4 one of f16 for every 32 weights."""

HELD: Final = ("f32", "bf16", "int8")
"""The formats that the engine holds; it has the first one by default."""

ALIASES: Final[Mapping[str, str]] = {
    "float32": "f32", "fp32": "f32", "bfloat16": "bf16", "float16": "f16", "fp16": "f16",
    "q8": "int8", "i8": "int8", "q8_0": "int8", "int4": "q4", "q4_0": "q4",
}  # fmt: skip


def format_of(name: str, known: Iterable[str] = FORMATS) -> str:
    """Return the format called *name*, or an alias. Raise UsageError if it is not among *known*."""
    found = ALIASES.get(name, name)
    if found in known:
        return found
    if found in FORMATS:
        expected = f"{', '.join(HELD)}: the engine holds no others, and times alone take any"
        raise UsageError(Problem("--weights", repr(name), expected))
    raise UsageError(Problem("--weights", repr(name)[:60], f"a format: {nearest(name, FORMATS)}"))
