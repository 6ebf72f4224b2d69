"""The JSON schema of an experiment file, with the settings of every algorithm and workload and the kinds of faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from simcluster.algorithms import ALGORITHMS
from simcluster.documents.limits import MOST_STEPS
from simcluster.documents.settings import settings_schema
from simcluster.documents.values import Schema, quantity_schema
from simcluster.experiment.read.keys import ExperimentBlock
from simcluster.fault_plans.keys import AT_STEP, KINDS, SHARE_DOWN
from simcluster.fault_plans.read import SPELLS_LIMIT
from simcluster.schemas import by_name, definitions_of, written
from simcluster.schemas.topology import topology, topology_blocks
from simcluster.units import TIMES
from simcluster.workloads import WORKLOADS

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
_NEEDED: Final = ("node", "link", "groups", "period")
"""Keys that several kinds of faults share, and that must be given."""


def experiment_schema() -> str:
    """Return the text of the schema."""
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
    }
    whole["required"] = ["topology"]
    whole["oneOf"] = [{"required": ["script"]}, {"required": ["algorithm", "workload"]}]
    return written("An experiment of simcluster", whole, definitions)


def _refer(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _named(known: Mapping[str, Callable[..., Any]]) -> Schema:
    """Return the schema of a block that names one of *known* with its settings, or a file with any."""
    cases = {}
    for name, function in sorted(known.items()):
        schema = settings_schema(function)
        if known is WORKLOADS and "batch_size" in schema["properties"]:
            schema["properties"]["batch_size"] = _BATCHES
        cases[name] = schema | {"properties": {"name": {"const": name}, **schema["properties"]}}
    path = {"properties": {"path": {"type": "string", "pattern": r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$"}}}
    return {
        "type": "object",
        "if": {"required": ["path"]},
        "then": path | {"not": {"required": ["name"]}},
        "else": by_name("name", cases),
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
