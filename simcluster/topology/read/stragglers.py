"""Read a device's straggler model from a topology document: its kind, and that kind's settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic_core import InitErrorDetails

from simcluster.documents.models import Block, Keys, block_of, fault
from simcluster.documents.values import Positive
from simcluster.errors import nearest
from simcluster.topology.model.stragglers import Straggler, Trace
from simcluster.topology.read.traces import TraceBlock, steps_of


def _factors(value: object) -> object:
    return steps_of(value, Positive, "a mapping of times to factors: {0 s: 1, 10 s: 3}")


class _FactorTrace(TraceBlock):
    rows, either = "factors", "file or factors: a file (CSV, time_s and factor), or factors ({0 s: 1, 10 s: 3})"
    factors: Annotated[tuple[tuple[float, float], ...], PlainValidator(_factors)] = ()


_CLASSES: dict[str, type[Straggler]] = {made.kind: made for made in Straggler.__subclasses__()}
_BLOCKS: dict[str, type[Block]] = {
    kind: _FactorTrace if made is Trace else block_of(made) for kind, made in _CLASSES.items()
}
STRAGGLER_KINDS = {kind: block.known.names for kind, block in _BLOCKS.items()}
"""Kind -> its keys."""

_KEYS = Keys(dict.fromkeys(["kind", *(key for keys in STRAGGLER_KINDS.values() for key in keys)]))
STRAGGLER_KEYS = _KEYS.names


def read_straggler(value: object) -> Straggler:
    """Return the straggler model that *value* of a document describes."""
    made: Straggler = _KEYS.check(value, _made, _foreign, _KEYS.unknown)
    return made


def _kind(given: Mapping[str, Any]) -> Any:
    # `--set nodes.pi4.straggler.factor=10` on a node without a straggler means the simplest kind.
    return given.get("kind", "constant")


def _made(given: Mapping[str, Any]) -> Any:
    kind = _kind(given)
    if not isinstance(kind, str) or kind not in _BLOCKS:
        return None
    settings = dict(_BLOCKS[kind].read({key: given[key] for key in STRAGGLER_KINDS[kind] if key in given}))
    settings.pop("file", None)
    return _CLASSES[kind](**settings)


def _foreign(given: Mapping[str, Any]) -> Iterable[InitErrorDetails]:
    kind = _kind(given)
    if not isinstance(kind, str) or kind not in _BLOCKS:
        yield fault("kind", expected=f"one of {len(_BLOCKS)} known: {nearest(str(kind), _BLOCKS)}")
        return
    keys = STRAGGLER_KINDS[kind]
    for key in given:
        if key in STRAGGLER_KEYS and key not in ("kind", *keys):
            yield fault(key, found=f"it with kind {kind}", expected=" and ".join(keys), at_key=True)
