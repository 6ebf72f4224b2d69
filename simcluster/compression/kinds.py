"""The kinds of compression by name, and the type of a setting that names one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from simcluster.compression.compressor import Compressor
from simcluster.compression.half import Bf16, Fp16
from simcluster.compression.int8 import Int8
from simcluster.compression.power_sgd import PowerSgd
from simcluster.compression.qsgd import Qsgd
from simcluster.compression.random_k import RandomK
from simcluster.compression.sign import Sign
from simcluster.compression.sparse_loco import SparseLoCo
from simcluster.compression.terngrad import TernGrad
from simcluster.compression.top_k import TopK
from simcluster.spelling import nearest

NONE = "none"
_KINDS: tuple[type[Compressor], ...] = (Bf16, Fp16, Int8, PowerSgd, Qsgd, RandomK, Sign, SparseLoCo, TernGrad, TopK)
KINDS: Mapping[str, type[Compressor]] = {kind.model_fields["kind"].default: kind for kind in _KINDS}


def compressor(compression: str | Mapping[str, Any]) -> Compressor | None:
    """Return the compressor for *compression*, or None for "none".

    Raise a ValidationError that lists all problems if *compression* is invalid.
    """
    given = {"kind": compression} if isinstance(compression, str) else compression
    if not isinstance(given, Mapping):
        raise _error([((), "name_or_mapping", f"a kind ({', '.join([NONE, *KINDS])}), or a mapping with one", given)])
    if "kind" not in given:
        raise _error([((), "kind", f"a key kind: {', '.join([NONE, *KINDS])}", given)])
    kind = given["kind"]
    if kind == NONE:
        if len(given) > 1:
            others = {key: value for key, value in given.items() if key != "kind"}
            raise _error([((key,), "none", f"no other key with kind: {NONE}", others[key]) for key in others])
        return None
    if not isinstance(kind, str) or kind not in KINDS:
        place = () if isinstance(compression, str) else ("kind",)
        raise _error([(place, "kind", f"a kind of compression: {nearest(str(kind), [NONE, *KINDS])}", kind)])
    of_kind = KINDS[kind]
    try:
        return of_kind.model_validate_json(json.dumps(dict(given)), strict=True)
    except ValidationError as error:
        details: list[_Detail] = []
        for wrong in error.errors():
            where, type_ = wrong["loc"], wrong["type"]
            message = nearest(str(where[-1]), of_kind.model_fields) if type_ == "extra_forbidden" else wrong["msg"]
            details.append((where, type_, message, wrong["input"]))
        raise _error(details) from None


def completed(compression: Any) -> str | dict[str, Any]:
    """Check *compression* and return it with all defaults filled in, as plain values that a file
    can hold.
    """
    found = compressor(compression)
    return NONE if found is None else found.model_dump(mode="json")


def _schema() -> dict[str, Any]:
    """Return the JSON schema of a compression: the name of a kind, or a mapping with the kind and
    its settings.
    """
    of_kinds = [kind.model_json_schema() | {"required": ["kind"]} for kind in _KINDS]
    alone: dict[str, Any] = {
        "properties": {"kind": {"const": NONE}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    cases = [
        {"if": {"properties": {"kind": schema["properties"]["kind"]}, "required": ["kind"]}, "then": schema}
        for schema in (alone, *of_kinds)
    ]
    names = {"enum": [NONE, *KINDS]}
    mapping = {"type": "object", "properties": {"kind": names}, "required": ["kind"], "allOf": cases}
    return {"anyOf": [names, mapping]}


Compression = Annotated[str | Mapping[str, Any], PlainValidator(completed), WithJsonSchema(_schema())]
"""The type of a setting for compression, as in `compression: Compression = "none"`.

In a file: `int8`, or `{kind: top_k, ...}`.
"""

_Detail = tuple[tuple[str | int, ...], str, str, Any]


def _error(details: list[_Detail]) -> ValidationError:
    lines = []
    for where, name, message, value in details:
        told = PydanticCustomError(name, message.replace("{", "(").replace("}", ")"))
        lines.append(InitErrorDetails(type=told, loc=where, input=value))
    return ValidationError.from_exception_data("compression", lines)
