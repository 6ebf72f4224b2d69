"""The keys of an experiment as pydantic models, except blocks that refer to something else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field
from pydantic_core import InitErrorDetails

from simcluster.backend import BACKENDS
from simcluster.checkpoints.store import Best
from simcluster.documents.limits import MOST_STEPS, MOST_WHOLE
from simcluster.documents.models import Block, Faults, Given, WrongValue, fault
from simcluster.documents.values import Flag, Schema, ValueValidator, block, only, quantity_schema, whole
from simcluster.spelling import nearest
from simcluster.units import TIMES, parse_latency, write_latency
from simcluster.workloads.workload import Numerics

GradientNorms = bool | Literal["layers"]
"""Whether to record the norm of each gradient; with "layers", also the norm for each parameter."""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MOST_STEPS


def _is_norms(value: Any) -> bool:
    return isinstance(value, bool) or value == "layers"


def _time(value: object) -> float:
    time_s = parse_latency(value)
    if not time_s:
        raise WrongValue("a time above zero")
    return time_s


def _among(options: tuple[str, ...]) -> ValueValidator:
    schema = {"enum": list(options)}
    return only(lambda value: isinstance(value, str) and value in options, " or ".join(options), schema)


_NORMS = only(_is_norms, "true or false, or layers for each parameter's, too", {"enum": [True, False, "layers"]})
_EPOCHS: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_STEPS}
_NAME = only(lambda value: isinstance(value, str) and bool(value), "a short text", {"type": "string", "minLength": 1})

Norms = Annotated[GradientNorms, _NORMS]
Steps = Annotated[int, whole(1, MOST_STEPS, f"a whole number of at least 1 and at most {MOST_STEPS}")]
Seed = Annotated[int, whole(0, MOST_WHOLE, f"a whole number of at least 0 and at most {MOST_WHOLE}")]


class StopBlock(Block):
    """The stop rule of a run: after steps or epochs of every rank, at a time, or without a lower held-out loss in
    *patience* evaluations in a row.
    """

    mapping = "a mapping: steps or epochs, time, and patience"
    rules: ClassVar[Schema] = {"oneOf": [{"required": ["steps"]}, {"required": ["epochs"]}]}
    steps: Steps | None = None
    epochs: Annotated[Any, only(_is_number, f"a number above 0 and at most {MOST_STEPS}", _EPOCHS)] = None
    patience: Steps | None = None
    time_s: Annotated[float, ValueValidator(_time, quantity_schema(TIMES))] | None = Field(default=None, alias="time")

    @classmethod
    def faults(cls, given: Given) -> Faults:
        if ("steps" in given) == ("epochs" in given):
            yield fault(expected="either steps or epochs")

    @property
    def block(self) -> dict[str, Any]:
        """This block as in a file."""
        time = {"time": write_latency(self.time_s)} if self.time_s is not None else {}
        return self.model_dump(exclude={"time_s"}, exclude_none=True) | time


class CheckpointSettings(Block):
    """Checkpoints after each *every* steps and after the last step.

    The *keep* newest stay, and the one with the *best* held-out accuracy or loss.
    """

    mapping = "a mapping: every, keep, best"
    every: Annotated[int, whole(1, MOST_STEPS, f"a whole number of steps, from 1 to {MOST_STEPS}")]
    keep: Annotated[int, whole(1, MOST_STEPS, f"a whole number, from 1 to {MOST_STEPS}")] = 3
    best: Annotated[Best, _among(("accuracy", "loss"))] | None = None

    @property
    def block(self) -> dict[str, Any]:
        """This block as in a file."""
        return self.model_dump(exclude_none=True)


class ObserveBlock(Block):
    """Measurements while nodes train, off the clock."""

    mapping = "a mapping: gradient_norms, learning_rate"
    gradient_norms: Norms = False
    learning_rate: Flag = False

    @cached_property
    def block(self) -> dict[str, Any]:
        """This block as in a file; empty if nothing is observed."""
        return self.model_dump(exclude_defaults=True)


class ExperimentBlock(Block):
    """An experiment; other modules read *topology*, *algorithm*, *workload*, *faults* and *world*."""

    name: Annotated[str, _NAME] | None = None
    topology: Any = None
    algorithm: Any = None
    workload: Any = None
    script: Any = None
    stop: Annotated[StopBlock, block(StopBlock)] = StopBlock(epochs=1)
    evaluate_every: Steps | None = None
    evaluate_consensus: Flag = False
    planned: Any = Field(default=None, alias="faults")
    world: Any = None
    seed: Seed = 0
    numerics: Annotated[Numerics, _among(get_args(Numerics))] = "real"
    check_memory: Flag = True
    checkpoint: Annotated[CheckpointSettings, block(CheckpointSettings)] | None = None
    observe: Annotated[ObserveBlock, block(ObserveBlock)] = ObserveBlock()
    regroup: Flag = True
    backend: Annotated[str, _among(BACKENDS)] = "sim"

    @classmethod
    def unknown(cls, key: str) -> InitErrorDetails:
        return fault(key, found="unknown key", expected=meant_key(key), at_key=True)

    @classmethod
    def faults(cls, given: Given) -> Faults:
        if given.get("numerics") != "none":
            return
        backend, observe = given.get("backend"), given.get("observe")
        if backend in BACKENDS[1:]:
            expected = f"real, since {backend} computes on real nodes; none is for the simulator"
            yield fault("numerics", expected=expected)
        if given.get("evaluate_consensus") is True:
            expected = "numerics: real, since without it there are no weights"
            yield fault("evaluate_consensus", expected=expected)
        if isinstance(given.get("checkpoint"), dict):
            expected = "no checkpoints: with numerics: none there are no values to keep"
            yield fault("checkpoint", expected=expected)
        stop = given.get("stop")
        if isinstance(stop, dict) and stop.get("patience") is not None:
            yield fault("stop", "patience", expected="numerics: real, since without it there is no loss")
        for key, lacks in (("gradient_norms", "are no gradients"), ("learning_rate", "is no optimizer")):
            if isinstance(observe, dict) and observe.get(key) in (True, "layers"):
                yield fault("observe", key, expected=f"numerics: real, since without it there {lacks}")


KEYS = ExperimentBlock.known.names

_INSIDE: Mapping[str, type[Block]] = {"stop": StopBlock, "checkpoint": CheckpointSettings, "observe": ObserveBlock}


def meant_key(key: str) -> str:
    """Return a suggestion for the unknown *key*: a key inside a block, or the most similar key."""
    outer = next((name for name, made in _INSIDE.items() if key in made.known.names), None)
    if outer is None:
        return nearest(key, KEYS)
    return f'did you mean {outer}.{key}, in Python {outer}={{"{key}": ...}}?'
