"""The JSON schema of a topology file: nodes and links, or the settings of a generator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, get_args

import pydantic

from simcluster.documents.models import Block
from simcluster.documents.values import Schema, ValueValidator, one_of, quantity_schema, schema_of, whole
from simcluster.topology.model.link import Duplex
from simcluster.topology.presets.generators import GENERATORS, MOST_WORKERS
from simcluster.topology.presets.links import DEVICES
from simcluster.topology.read.generated import GENERATOR
from simcluster.topology.read.network import NetworkBlock
from simcluster.topology.read.nodes import NodeBlock
from simcluster.topology.read.read import HeadBlock, TopologyBlock
from simcluster.units import BANDWIDTHS, TIMES
from tools.schemas import by_name, definitions_of, written


def topology_schema() -> str:
    """Return the text of the schema file for topologies."""
    definitions = definitions_of(topology_blocks())
    return written("A topology of simcluster", topology(), definitions)


def topology() -> Schema:
    """Return the schema of a topology, which refers to the definitions of `topology_blocks`."""
    generated = by_name(GENERATOR, {name: schema_of(made) for name, made in _generated().items()})
    return {"if": {"required": [GENERATOR]}, "then": generated, "else": schema_of(TopologyBlock)}


def topology_blocks() -> list[type[Block]]:
    return [TopologyBlock, *_generated().values()]


@cache
def _generated() -> dict[str, type[Block]]:
    """Return name of a generator -> the block for its settings."""
    return {name: _block(name, make) for name, make in GENERATORS.items()}


def _block(name: str, make: Callable[..., Any]) -> type[Block]:
    fields: dict[str, Any] = {GENERATOR: (Annotated[str, one_of((name,))], ...)}
    for key, setting in inspect.signature(make).parameters.items():
        required = setting.default is setting.empty
        fields[key] = (Annotated[Any, _value(key, required)], ... if required else None)
    bases = (NetworkBlock, HeadBlock)
    return pydantic.create_model(f"generator_{name}", __base__=bases, __doc__=inspect.getdoc(make), **fields)


def _value(key: str, required: bool) -> ValueValidator:
    if required:
        return whole(1, MOST_WORKERS)
    if key == "duplex":
        return one_of(get_args(Duplex))
    if key == "device":
        return ValueValidator(str, {"anyOf": [{"enum": sorted(DEVICES)}, schema_of(NodeBlock)]})
    return ValueValidator(str, quantity_schema(BANDWIDTHS if key.endswith("bandwidth") else TIMES))
