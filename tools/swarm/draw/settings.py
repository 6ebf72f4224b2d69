"""Draws settings of an algorithm from its signature: short rounds, bounded numbers, all choices."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from simcluster.algorithms import ALGORITHMS
from simcluster.collectives import ScheduleOf
from tools.swarm.draw.dice import Dice

COMPRESSIONS = ("none", "bf16", "fp16", "int8", "qsgd", "sign", "terngrad", {"kind": "top_k", "fraction": 0.5})
OVERLAYS = ("ring", "complete", "line", "star", "exponential", "one_peer_exponential")

RANGES: dict[str, Callable[[Dice, int], Any]] = {
    "interval": lambda dice, size: dice.whole("value", 1, 4),
    "warmup": lambda dice, size: dice.whole("value", 1, 4),
    "chunk": lambda dice, size: dice.pick("value", (2, 4, 64)),
    "bucket_bytes": lambda dice, size: dice.pick("value", (1, 16, 64)),
    "timeout_s": lambda dice, size: dice.spread("value", 1e-4, 0.05),
    "k": lambda dice, size: dice.whole("value", 1, size),
    "quorum": lambda dice, size: dice.whole("value", 1, max(size - 1, 1)),
    "grace_s": lambda dice, size: dice.spread("value", 1e-4, 0.05),
    "sites": lambda dice, size: None,
    "shares": lambda dice, size: None,
    "layout": lambda dice, size: None,
    "load": lambda dice, size: None,
    "wait_for": lambda dice, size: dice.whole("value", 1, size),
    "n": lambda dice, size: dice.whole("value", 1, size),
    "buffer": lambda dice, size: dice.whole("value", 1, 3),
    "epsilon": lambda dice, size: 1e-8,
    "cuts": lambda dice, size: None,
    "chunks": lambda dice, size: None,
    "flops_per_s": lambda dice, size: None,
    "bandwidth_Bps": lambda dice, size: None,
    "micro_batches": lambda dice, size: dice.pick("value", (1, 2, 4)),
    "overlap": lambda dice, size: dice.whole("value", 0, 1),
    "beta": lambda dice, size: dice.uniform("value", 0.1, 0.9),
    "outer_learning_rate": lambda dice, size: dice.uniform("value", 0.1, 1.0),
    "server_learning_rate": lambda dice, size: dice.uniform("value", 0.1, 1.0),
}
"""Name of a setting -> a function that draws it, for settings with a type that sets no range."""

SHORT = {"interval": 2, "warmup": 2}
"""Name of a setting -> its value unless one is drawn.

The values are small, so that even a run of few steps has rounds.
"""


def draw_settings(dice: Dice, algorithm: str, size: int, varied: bool) -> dict[str, Any]:
    """Return settings of *algorithm* for *size* ranks.

    They are defaults with short rounds. If *varied*, some of them are random.
    """
    function = ALGORITHMS[algorithm]
    hints = get_type_hints(function, include_extras=True)
    drawn: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if name in SHORT:
            drawn[name] = SHORT[name] + 2 * (algorithm == "streaming_diloco")
        if varied and dice.chance(f"{name} is drawn", 0.35):
            value = _value(dice.below(name), name, hints[name], size)
            if value is not None:
                drawn[name] = value
    if algorithm == "pipeline" and size > 1 and drawn.get("schedule") == "interleaved":
        del drawn["schedule"]  # it needs two stages per rank, and the model has only three layers
    for name in _unfit(algorithm, drawn):
        drawn.pop(name, None)
    return drawn


def _unfit(algorithm: str, drawn: Mapping[str, Any]) -> Sequence[str]:
    """Return the drawn settings that others exclude."""
    if algorithm == "async_diloco":
        return ("delay", "spread") if "quorum" in drawn else ("grace_s",)
    if algorithm == "zero" and "compression" in drawn:
        return ("compression",) if "power_sgd" in str(drawn["compression"]) else ("reduce",)
    return ()


def _value(dice: Dice, name: str, hint: Any, size: int) -> Any:
    if name in RANGES:
        return RANGES[name](dice, size)
    if name == "compression":
        return dice.pick("value", COMPRESSIONS)
    if name == "overlay":
        return dice.pick("value", OVERLAYS)
    return _of_type(dice, hint)


def _of_type(dice: Dice, hint: Any) -> Any:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _of_type(dice, next(part for part in inside if part is not type(None)))
    if origin is Literal:
        return dice.pick("value", inside)
    if hint is bool:
        return dice.chance("value", 0.5)
    if origin is Annotated:
        kind, *bounds = inside
        if isinstance(bounds[0], ScheduleOf):
            # Those that need sites or shares fit only some topologies.
            return dice.pick("value", ScheduleOf(bounds[0].op, bounds[0].own).names)
        least = next((_edge(bound) for bound in bounds if isinstance(bound, (Gt, Ge))), 0)
        most = next((_edge(bound) for bound in bounds if isinstance(bound, (Lt, Le))), None)
        if kind is int:
            return dice.whole("value", least + any(isinstance(bound, Gt) for bound in bounds), 3)
        return dice.uniform("value", least + 0.05, (1.0 if most is None else most) - 0.05)
    raise TypeError(f"no range for a setting of type {hint}: give it one in RANGES")


def _edge(bound: Gt | Ge | Lt | Le) -> Any:
    return next(getattr(bound, name) for name in ("gt", "ge", "lt", "le") if hasattr(bound, name))
