"""JSON schemas of topology and experiment files, for editors.

They are made from the models that read these files, and accept the same files, except that they do
not check references to other files or names. Draft 7 is the newest draft that the common language
server for YAML fully supports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from simcluster.documents.models import Block
from simcluster.documents.values import BLOCK, Schema

DRAFT = "http://json-schema.org/draft-07/schema#"
_REFERENCE = re.compile(r'"#/definitions/([^"]+)"')


class _Draft7(GenerateJsonSchema):
    """Pydantic's generator, restricted to defaults that can be written in a file.

    The readers' other defaults are numbers in base units.
    """

    def default_schema(self, schema: Any) -> Schema:
        made = self.generate_inner(schema["schema"])
        default = schema.get("default")
        fits = isinstance(default, bool) or (isinstance(default, str) and default != "")
        if isinstance(default, int) and made.get("type") == "integer":
            fits = True
        return made | {"default": default} if fits else made

    def nullable_schema(self, schema: Any) -> Schema:
        return self.generate_inner(schema["schema"])  # Block allows null for every optional key


def definitions_of(blocks: Iterable[type[Block]]) -> dict[str, Schema]:
    """Return name -> schema, for *blocks* and for all blocks to which they refer."""
    known = {made.__name__: made for made in _below(Block)}
    found: dict[str, Schema] = {}
    wanted = [made.__name__ for made in blocks]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = _finished(known[name].model_json_schema(schema_generator=_Draft7))
            wanted += _REFERENCE.findall(json.dumps(found[name]))
    return found


def _below(made: type[Block]) -> Iterator[type[Block]]:
    for one in made.__subclasses__():
        yield one
        yield from _below(one)


def by_name(key: str, cases: Mapping[str, Schema]) -> Schema:
    """Return the schema of a mapping that must match the schema in *cases* that its *key* names."""
    one_of = [
        {"if": {"properties": {key: {"const": name}}, "required": [key]}, "then": schema}
        for name, schema in cases.items()
    ]
    return {"type": "object", "properties": {key: {"enum": list(cases)}}, "required": [key], "allOf": one_of}


def written(title: str, schema: Schema, definitions: Mapping[str, Schema]) -> str:
    """Return the text of a schema file."""
    whole = {"$schema": DRAFT, "title": title, **_finished(schema)}
    whole["definitions"] = {name: _finished(definitions[name]) for name in sorted(definitions)}
    return json.dumps(whole, indent=1, ensure_ascii=True) + "\n"


def _finished(schema: Any) -> Any:
    """Return *schema* with references to blocks, and without pydantic's titles, which repeat the
    keys.
    """
    if isinstance(schema, list):
        return [_finished(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if BLOCK in schema:
        return {"$ref": f"#/definitions/{schema[BLOCK]}"}
    kept = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    return {
        key: {name: _finished(part) for name, part in value.items()} if key == "properties" else _finished(value)
        for key, value in kept.items()
    }
