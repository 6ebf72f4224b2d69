"""The JSON schema of an experiment file, with all algorithms, workloads and kinds of faults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints

import pydantic

from simcluster.algorithms import ALGORITHMS
from simcluster.documents.limits import MOST_STEPS
from simcluster.documents.settings import settings_of
from simcluster.documents.values import Schema, quantity_schema
from simcluster.experiment.read.keys import ExperimentBlock
from simcluster.fault_plans.keys import AT_STEP, KINDS, SHARE_DOWN
from simcluster.fault_plans.read import SPELLS_LIMIT
from simcluster.units import TIMES
from simcluster.workloads import WORKLOADS
from tools.schemas import by_name, definitions_of, written
from tools.schemas.topology import topology, topology_blocks

_WHOLE: Final[Schema] = {"type": "integer", "minimum": 1}
_BATCHES: Final[Schema] = {
    "anyOf": [
        _WHOLE,
        {"type": "object", "properties": {"total": _WHOLE, "by": {"const": "device"}}, "required": ["total", "by"]},
        {"type": "object", "additionalProperties": _WHOLE},
    ]
}
_NAME: Final[Schema] = {"type": "string"}
_OF_FAULTS: Final[Mapping[str, Schema]] = {
    **dict.fromkeys(("at", "for", "after", "notice", "every", "mean_every", "period"), quantity_schema(TIMES)),
    AT_STEP: _WHOLE | {"maximum": MOST_STEPS},
    "times": _WHOLE | {"maximum": SPELLS_LIMIT},
    **dict.fromkeys(("node", "link", "towards"), _NAME),
    "groups": {"type": "array", "minItems": 2, "items": {"type": "array", "minItems": 1, "items": _NAME}},
    "down": SHARE_DOWN.value.json_schema(),
}
_PATH: Final[Schema] = {"properties": {"path": {"type": "string", "pattern": r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$"}}}
_WORLD: Final[Schema] = {"anyOf": [{"type": "string"}, {"type": "object", "required": ["path"], **_PATH}]}
_NEEDED: Final = ("node", "link", "groups", "period")
"""Keys that are required by every kind of fault that allows them."""


def experiment_schema() -> str:
    """Return the text of the schema file for experiments."""
    definitions = definitions_of([ExperimentBlock, *topology_blocks()])
    whole = definitions.pop(ExperimentBlock.__name__)
    definitions |= {"Topology": topology(), "Algorithm": _named(ALGORITHMS), "Workload": _named(WORKLOADS)}
    definitions |= {f"fault_{kind}": _fault(kind) for kind in KINDS}
    of_kind = by_name("kind", {kind: _refer(f"fault_{kind}") for kind in KINDS})
    whole["properties"] |= {
        "topology": {"anyOf": [{"type": "string"}, _refer("Topology")]},
        "algorithm": {"anyOf": [{"enum": sorted(ALGORITHMS)}, _refer("Algorithm")]},
        "workload": {"anyOf": [{"enum": sorted(WORKLOADS)}, _refer("Workload")]},
        "faults": {"anyOf": [{"type": "array", "items": of_kind}, {"type": "null"}]},
        "world": {"anyOf": [_WORLD, {"type": "array", "items": _WORLD}, {"type": "null"}]},
    }
    whole["required"] = ["topology"]
    whole["oneOf"] = [{"required": ["script"]}, {"required": ["algorithm", "workload"]}]
    return written("An experiment of simcluster", whole, definitions)


def _refer(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _named(known: Mapping[str, Callable[..., Any]]) -> Schema:
    """Return the schema of a block with the settings of one function.

    The block has the name of one of *known*, or the path of a user's function.
    """
    cases = {}
    for name, function in sorted(known.items()):
        schema = settings_schema(function)
        if known is WORKLOADS and "batch_size" in schema["properties"]:
            schema["properties"]["batch_size"] = _BATCHES
        cases[name] = schema | {"properties": {"name": {"const": name}, **schema["properties"]}}
    return {
        "type": "object",
        "if": {"required": ["path"]},
        "then": _PATH | {"not": {"required": ["name"]}},
        "else": by_name("name", cases),
    }


def settings_schema(function: Callable[..., Any]) -> Schema:
    """Return the JSON schema of *function*'s settings.

    The description is the first paragraph of the function's docstring.
    """
    hints, settings = get_type_hints(function, include_extras=True), settings_of(function)
    properties = {}
    for setting in settings:
        schema = pydantic.TypeAdapter(hints.get(setting.name, Any)).json_schema()
        properties[setting.name] = schema if setting.required else schema | {"default": setting.default}
    words = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("*", "")
    return {
        "type": "object",
        "description": " ".join(words.split()),
        "properties": properties,
        "required": [setting.name for setting in settings if setting.required],
        "additionalProperties": False,
    }


def _fault(kind: str) -> Schema:
    found = KINDS[kind]
    of_keys = {**_OF_FAULTS, **{key: own.value.json_schema() for key, own in found.own.items()}}
    properties = {"kind": {"const": kind}} | {key: of_keys[key] for key in ("at", *found.keys)}
    needed = [key for key in found.keys if key in (*_NEEDED, *found.required, *found.own)]
    return {
        "type": "object",
        "properties": properties,
        "required": ["kind", *needed],
        "oneOf": [{"required": [key]} for key in ("at", AT_STEP) if key in properties],
        "additionalProperties": False,
    }
