"""Read `clients`: workers with the speeds that FedScale publishes, each with a link to one node.

FedScale has two numbers per client: the milliseconds that the forward pass of a model takes for one
sample, and kbit/s. `work_per_sample` is the work of that pass. It turns the time into the speed of
a device, which holds for other models, too.
"""

from __future__ import annotations

import csv
import io
import json
import math
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from simcluster.documents.models import Block
from simcluster.documents.reading import DocumentReading
from simcluster.documents.values import LEAST, MOST, Latency, only, quantity, whole
from simcluster.documents.yaml import read_text
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.units import AMOUNTS, parse_amount, write_latency, write_rate

MOST_CLIENTS: Final = 100_000
COLUMNS: Final = ("computation", "communication")
_EXPECTED = f"{' and '.join(COLUMNS)} in the header of a CSV file, or in the objects of a JSON mapping or list"
_CONVERT = """\
a CSV file, written where you trust the pickle: python -c 'import pickle, sys; print("computation,communication"); \
[print(it["computation"], it["communication"], sep=",") for it in pickle.load(sys.stdin.buffer).values()]' <"""
_text = only(lambda value: isinstance(value, str), "text", {"type": "string"})


class ClientsBlock(Block):
    """The first *count* clients of a *file*: workers client0, client1, ..., each linked *to* a node."""

    file: Annotated[str, _text]
    count: Annotated[int, whole(1, MOST_CLIENTS)]
    work_per_sample_flops: Annotated[float, quantity(parse_amount, AMOUNTS)] = Field(alias="work_per_sample")
    to: Annotated[str, _text]
    latency_s: Latency = Field(alias="latency")


def put_clients(reading: DocumentReading) -> None:
    """Put a node and a link per client into the document, in place of its key clients."""
    data = reading.document.data
    if not isinstance(data, dict) or data.get("clients") is None:
        return
    block = reading.read(ClientsBlock.read, ("clients",))
    del data["clients"]
    nodes, links = data.setdefault("nodes", {}), data.setdefault("links", [])
    if block is None or not isinstance(nodes, dict) or not isinstance(links, list):
        return
    path = reading.document.folder_of(("clients", "file")) / block.file
    speeds = reading.collect(lambda: _speeds(path, block.count)) or []
    for number, (sample_ms, rate_kbps) in enumerate(speeds):
        name = f"client{number}"
        if name in nodes:
            reading.bad(("nodes", name), "another name: clients are called so", at_key=True)
        nodes[name] = {"flops": write_rate(block.work_per_sample_flops / sample_ms * 1000)}
        latency = write_latency(block.latency_s)
        links.append({"between": [name, block.to], "bandwidth": f"{rate_kbps!r} kbps", "latency": latency})


def _speeds(path: Path, count: int) -> list[list[float]]:
    """Return [ms per sample, kbit/s] of the first *count* clients of the file.

    Raise UsageError as `_rows` does, or if a number is not from LEAST to MOST, or if there are fewer clients.
    """
    problems, found = [], []
    for place, row in _rows(path, count):
        found.append([_number(row.get(column)) for column in COLUMNS])
        for column, speed in zip(COLUMNS, found[-1], strict=True):
            if not LEAST <= speed <= MOST:
                key, line = (column, place) if isinstance(place, int) else (f"{place}.{column}", None)
                expected = f"a number above 0, from {LEAST:g} to {MOST:g}"
                problems.append(Problem(key, f"{row.get(column)!r:.80}", expected, str(path), line))
    raise_all(problems)
    if len(found) < count:
        raise UsageError("clients.count", f"{count}", f"at most {len(found)}, those of {path}")
    return found


def _rows(path: Path, count: int) -> list[tuple[str | int, dict[str, Any]]]:
    """Return (line number or JSON key, values by column) of the first *count* clients.

    Raise UsageError if the file cannot be read, or if it is not CSV or JSON with COLUMNS.
    """
    try:
        text = read_text(path, may_be_pipe=False)
    except UsageError:
        with suppress(OSError), path.open("rb") if path.is_file() else io.BytesIO() as file:
            if file.read(1) == b"\x80":  # the first byte of a pickle, but never of text
                found = "a pickle, which can run any code"
                raise UsageError("clients.file", found, f"{_CONVERT} {path.name}", str(path)) from None
        raise
    if text.lstrip()[:1] in ("{", "["):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError("clients.file", f"no JSON: {error}", _EXPECTED, str(path)) from None
        each = data.items() if isinstance(data, dict) else enumerate(data)
        rows: list[Any] = [(f"[{key}]", row) for key, row in islice(each, count)]
    else:
        table = csv.DictReader(io.StringIO(text))
        try:
            rows = [(table.line_num, row) for row in islice(table, count)]
        except csv.Error as error:
            raise UsageError("clients.file", f"no CSV: {error}", _EXPECTED, str(path), table.line_num) from None
    if not rows or not all(isinstance(row, dict) and {*COLUMNS} <= row.keys() for _, row in rows):
        raise UsageError("clients.file", f"{text.partition(chr(10))[0][:80]!r}", _EXPECTED, str(path))
    return rows


def _number(value: object) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
