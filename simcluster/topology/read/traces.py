"""Read values over time in a topology document: steps in the document itself, or in a CSV file that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic_core import InitErrorDetails

from simcluster.documents.models import Block, Wrong, fault, refuse, tried
from simcluster.documents.values import only
from simcluster.documents.yaml import Document, KeyPath
from simcluster.errors import Problem
from simcluster.topology.read.trace_file import first_fault, read_rates, read_trace
from simcluster.units import parse_latency, write_latency

V = TypeVar("V")


class TraceBlock(Block):
    """A block with either a file or the *rows* that the file would hold."""

    file: Annotated[str, only(lambda x: isinstance(x, str), "the path of a CSV file, relative to this one")] | None = (
        None
    )
    rows: ClassVar[str]
    either: ClassVar[str]

    @classmethod
    def faults(cls, given: Mapping[str, Any]) -> Iterable[InitErrorDetails]:
        if ("file" in given) == (cls.rows in given):
            yield fault(found="both" if "file" in given else "neither", expected=f"either {cls.either}")


def steps_of(value: object, read: Callable[[Any], V], expected: str) -> tuple[tuple[float, V], ...]:
    """Return (time in s, *read* of the value) of each step in a mapping of times."""
    if not isinstance(value, dict) or not value:
        raise Wrong(expected)
    found: list[Any] = []
    steps: list[Any] = []
    for key, given in value.items():
        made = tried(found, lambda given=given: read(given), key)  # type: ignore[misc]
        at_s = tried(found, lambda key=key: parse_latency(key), key, at_key=True)  # type: ignore[misc]
        if at_s is None:
            continue
        if wrong := first_fault(at_s, steps[-1][0] if steps else None):
            found.append(fault(key, found=repr(key), expected=wrong, at_key=True))
        steps.append((at_s, made))
    refuse(found)
    return tuple(steps)


def put_files(document: Document, problems: list[Problem]) -> None:
    """Put the rows of every CSV file into *document*, so that it reads back equally anywhere."""
    nodes, links = document.get(("nodes",)), document.get(("links",))
    for name, node in nodes.items() if isinstance(nodes, dict) else ():
        block = node.get("straggler") if isinstance(node, dict) else None
        if isinstance(block, dict) and block.get("kind") == "trace":
            _put_file(document, ("nodes", name, "straggler"), block, "factors", read_trace, problems)
    for index, link in enumerate(links if isinstance(links, list) else ()):
        block = link.get("trace") if isinstance(link, dict) else None
        if isinstance(block, dict):
            _put_file(document, ("links", index, "trace"), block, "steps", read_rates, problems)


def _put_file(
    document: Document,
    path: KeyPath,
    block: Mapping[str, Any],
    key: str,
    read: Callable[..., Any],
    problems: list[Problem],
) -> None:
    if not isinstance(block.get("file"), str) or block.get(key) is not None:
        return
    file = document.folder_of((*path, "file")) / block["file"]
    rows = read(file, problems) or ((0.0, 1.0),)  # if there are none, that is a problem
    rest = {name: value for name, value in block.items() if name != "file"}
    made = {key: {write_latency(time_s): value for time_s, value in rows}}
    document.get(path[:-1])[path[-1]] = rest | made if key == "factors" else made | rest
