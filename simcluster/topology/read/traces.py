"""Read values over time in a topology document, from the document itself or from a file."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field

from simcluster.documents.models import Block, Faults, Given, WrongValue, fault, refuse, tried
from simcluster.documents.reading import DocumentReading
from simcluster.documents.values import Schema, Time, ValueValidator, only, text
from simcluster.documents.yaml_build import KeyPath
from simcluster.spelling import nearest
from simcluster.topology.read.trace_files import (
    BANDWIDTH,
    FACTOR,
    FORMAT,
    FORMS,
    LATENCY,
    TIME_COLUMNS,
    Format,
    TraceValue,
    ValuesFile,
    wrong_time,
)
from simcluster.units import TIMES, parse_latency, pattern_of, write_latency

V = TypeVar("V")

_FILE = "the path of a file, relative to this one"
_COLUMNS = (*TIME_COLUMNS, *dict.fromkeys(BANDWIDTH.columns + LATENCY.columns))


def _format_of(value: object) -> Format:
    if isinstance(value, dict) and len(value) == 2 and all(isinstance(name, str) for name in value.values()):
        refuse([fault(key, found="unknown column", expected=nearest(str(key), _COLUMNS), at_key=True)
                for key in value if key not in _COLUMNS])  # fmt: skip
        return value
    if isinstance(value, str) and value in FORMS:
        return value
    raise WrongValue(FORMAT)


class TraceBlock(Block):
    """A block with either the key `file`, or the key named by *rows*, which has the rows."""

    file: Annotated[str, only(lambda x: isinstance(x, str), _FILE, {"type": "string"})] | None = None
    rows: ClassVar[str]
    either: ClassVar[str]

    @classmethod
    def faults(cls, given: Given) -> Faults:
        if ("file" in given) == (cls.rows in given):
            yield fault(found="both" if "file" in given else "neither", expected=f"either {cls.either}")


_NAMES: Schema = {"type": "object", "propertyNames": {"enum": list(_COLUMNS)}, "minProperties": 2, "maxProperties": 2}
_FORMATS: Schema = {"anyOf": [{"enum": list(FORMS)}, _NAMES | {"additionalProperties": {"type": "string"}}]}


class LinkTraceBlock(TraceBlock):
    """A trace of a link. *source* says how its file was read, if not in simcluster's own form."""

    rows = "steps"
    period_s: Time = Field(math.inf, alias="period")
    format: Annotated[Any, ValueValidator(_format_of, _FORMATS)] = None
    source: Annotated[str, text(r"[^\x00-\x1f]{1,1000}", "a line of text")] = ""

    @classmethod
    def faults(cls, given: Given) -> Faults:
        yield from super().faults(given)
        if "format" in given and "file" not in given:
            yield fault("format", found="it without a file", expected="none", at_key=True)


def one_of_file_and(rows: str) -> dict[str, Any]:
    """Return the `rules` of a `TraceBlock` that requires either file or the key *rows*."""
    return {"oneOf": [{"required": ["file"]}, {"required": [rows]}]}


def steps(read: Callable[[Any], V], expected: str, schema: Schema) -> ValueValidator:
    """Return a validator of a mapping of times to values, which *read* converts.

    *schema* is the JSON schema of a value.
    """
    times = {"pattern": pattern_of(TIMES)}
    keys = {"type": "object", "minProperties": 1, "propertyNames": times, "description": expected}
    return ValueValidator(lambda value: steps_of(value, read, expected), keys | {"additionalProperties": schema})


def steps_of(value: object, read: Callable[[Any], V], expected: str) -> tuple[tuple[float, V], ...]:
    """Return (time in s, result of *read*) for each step of a mapping of times to values."""
    if not isinstance(value, dict) or not value:
        raise WrongValue(expected)
    found: list[Any] = []
    rows: list[Any] = []
    for key, given in value.items():
        made = tried(found, read, given, key)
        at_s = tried(found, parse_latency, key, key, at_key=True)
        if at_s is None:
            continue
        if wrong := wrong_time(at_s, rows[-1][0] if rows else None):
            found.append(fault(key, found=repr(key), expected=wrong, at_key=True))
        rows.append((at_s, made))
    refuse(found)
    return tuple(rows)


def put_files(reading: DocumentReading) -> None:
    """Put the rows of every trace file into the document, which then no longer needs the files."""
    nodes, links = reading.document.get(("nodes",)), reading.document.get(("links",))
    for name, node in nodes.items() if isinstance(nodes, dict) else ():
        block = node.get("straggler") if isinstance(node, dict) else None
        if isinstance(block, dict) and block.get("kind") == "trace":
            node["straggler"] = _with_rows(reading, ("nodes", name, "straggler"), block, "factors", FACTOR)
    for index, link in enumerate(links if isinstance(links, list) else ()):
        for key, value in (("trace", BANDWIDTH), ("latency_trace", LATENCY)):
            block = link.get(key) if isinstance(link, dict) else None
            if isinstance(block, dict):
                link[key] = _with_rows(reading, ("links", index, key), block, "steps", value)


def _with_rows(
    reading: DocumentReading, path: KeyPath, block: dict[str, Any], key: str, value: TraceValue
) -> dict[str, Any]:
    """Return *block*. If it names a file, the rows of the file at *key* replace the name."""
    if not isinstance(block.get("file"), str) or block.get(key) is not None:
        return block
    wrong: list[Any] = []
    form = tried(wrong, _format_of, block["format"]) if key == "steps" and block.get("format") is not None else None
    if wrong:
        return block  # the reader of the block reports the error
    file = ValuesFile(reading.document.folder_of((*path, "file")) / block["file"], value, reading.problems)
    rows = file.read(form) or [(0.0, 1.0)]  # a placeholder: an error has added a problem
    rest = {name: it for name, it in block.items() if name != "file" and (form is None or name != "format")}
    made = {key: {write_latency(time_s): it for time_s, it in rows}}
    if file.words and key == "steps":
        rest["source"] = f"{file.path.name}: {file.words}"
    if math.isfinite(file.period_s):
        if rest.get("period") is not None:
            reading.bad((*path, "period"), "none: the file has its own, which mahimahi repeats")
        rest["period"] = write_latency(file.period_s)
    return rest | made if key == "factors" else made | rest
