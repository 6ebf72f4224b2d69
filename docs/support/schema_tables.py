"""Tables of what YAML files may hold, from the JSON schemas that editors use: Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator
from typing import Any

from tools.schemas.experiment import experiment_schema
from tools.schemas.topology import topology_schema

EXAMPLES = {  # the first unit of a quantity: what it is
    "ns": "a time, such as `5 ms`",
    "bps": "a rate, such as `1 Gbps`",
    "B/s": "a rate, such as `100 GB/s`",
    "FLOP/s": "a speed, such as `2 TFLOP/s`",
    "B": "a size, such as `16 GB`",
    "mW": "a power, such as `6 W`",
}
ELSEWHERE = {  # blocks that another page has
    "Topology": "[a topology](topology-file.md)",
    "Algorithm": "[one with settings](settings.md#algorithms)",
    "Workload": "[one with settings](settings.md#workloads)",
}
_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text"}
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}


def tables(what: str) -> str:
    """Return the tables of *what*: algorithms, workloads, experiment or topology."""
    if what in ("algorithms", "workloads"):
        schema = json.loads(experiment_schema())
        return "\n".join(_named(schema["definitions"][what.removesuffix("s").capitalize()]))
    schema = json.loads(experiment_schema() if what == "experiment" else topology_schema())
    blocks = {name: block for name, block in schema["definitions"].items() if "properties" in block}
    if what == "experiment":  # the topology has a page
        blocks = {
            name: block for name, block in blocks.items() if name not in json.loads(topology_schema())["definitions"]
        }
        return "\n".join([_table(schema), *(_section(title(name), block) for name, block in blocks.items())])
    whole = blocks.pop("TopologyBlock")
    known = {name: whole["properties"] if name.startswith("generator") else () for name in blocks}
    rest = [_section(title(name), block, known[name]) for name, block in blocks.items()]
    return "\n".join([_section("Topology", whole), *rest])


def title(name: str) -> str:
    """Return the heading of block *name*: `fault_crash` is "Fault: crash", `_LinkSpread` "Link spread"."""
    name = name.strip("_").removesuffix("Block").removesuffix("Settings")
    if "_" in name:
        kind, _, rest = name.partition("_")
        return f"{kind.capitalize()}: {rest}"
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f" {found[1].lower()}", name)


def _named(schema: dict[str, Any]) -> Iterator[str]:
    for choice in schema["else"]["allOf"]:
        yield "#" + _section(choice["if"]["properties"]["name"]["const"], choice["then"])


def _section(heading: str, block: dict[str, Any], known: Container[str] = ()) -> str:
    words = " ".join(block.get("description", "").split())
    return "\n\n".join(part for part in (f"## {heading}", words, _table(block, known)) if part)


def _table(block: dict[str, Any], known: Container[str] = ()) -> str:
    """Return the table of *block*, without the keys that are *known* and the one that names it."""
    needed = block.get("required", [])
    rows = [
        f"| `{name}` | {_cell(values(one))} | {'required' if name in needed else default(one)} |\n"
        for name, one in block["properties"].items()
        if name not in known and not (name == "name" and "const" in one)
    ]
    return "| key | value | default |\n| --- | --- | --- |\n" + "".join(rows) if rows else "No settings.\n"


def _cell(text: str) -> str:
    """Return *text* for a table, without bounds so large that they say nothing."""
    text = re.sub(r"from (\d+) to \d{10,}", r"at least \1", text)
    return re.sub(r" and at most \d{10,}", "", text).replace("|", "\\|")


def default(schema: dict[str, Any]) -> str:
    """Return the default of a value in YAML's spelling; nothing where there is none, or where it is null."""
    for one in (schema, *schema.get("anyOf", [])):
        if one.get("default") is not None:
            return f"`{json.dumps(one['default'])}`".replace('"', "")
    return ""


def values(schema: dict[str, Any]) -> str:
    """Return in words which values *schema* accepts."""
    said = str(schema.get("description", "")).rstrip(".")
    if said and "properties" not in schema and not said.startswith("A number with its unit"):
        return said
    if "$ref" in schema:
        name = title(schema["$ref"].rpartition("/")[2])
        if name in ELSEWHERE:
            return ELSEWHERE[name]
        return f"[{name.lower()}](#{re.sub(r'[^a-z -]', '', name.lower()).replace(' ', '-')})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(values(one) for one in schema[key] if one.get("type") != "null"))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`".replace('"', "") for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    return _of_type(schema)


def _of_type(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if "pattern" in schema and (units := re.search(r"\\s\*\(([^()|]+)[|)]", schema["pattern"])):
        return EXAMPLES.get(units[1], f"a number with its unit, `{units[1]}`")
    if kind == "array":
        return f"a list: {values(schema['items'])}" if "items" in schema else "a list"
    if isinstance(kind, list):
        return " or ".join(_KINDS[one] for one in kind)
    if kind not in _KINDS:
        return "a block"
    bounds = [words.format(f"{schema[key]:g}") for key, words in _BOUNDS.items() if key in schema]
    return " ".join([_KINDS[kind], " and ".join(bounds)]).strip()
