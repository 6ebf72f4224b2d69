"""Whether a cell shows nearly the same on a processor with other kernels.

There the last bits of what is learned differ, and with them a digit, or the step at which a target is reached. Words
must be equal, and numbers close. An image carries the outline of its figure: the count and the range of each trace.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

WITHIN = 0.1
"""How far apart numbers may be, as a share of the larger one; of a figure, of the largest in its trace."""

DIGEST = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b")
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")


def close(old: Any, new: Any) -> bool:
    """Return whether the outputs of the cells *old* and *new* have the same words and close numbers."""
    return len(old.outputs) == len(new.outputs) and all(map(_close_outputs, old.outputs, new.outputs))


def outline(figure: Any) -> list[Any]:
    """Return, for each trace of a *figure*, its type, its name, and (count, least, most) of each of its arrays."""
    return [
        [trace.get("type", ""), trace.get("name", ""), {path: _range(numbers) for path, numbers in _arrays(trace, "")}]
        for trace in figure["data"]
    ]


def close_texts(old: str, new: str) -> bool:
    """Return whether two texts have the same words and close numbers, whatever the spaces and digests."""
    words, numbers = zip(*(_parts(text) for text in (old, new)), strict=True)
    return words[0] == words[1] and all(_near(a, b) for a, b in zip(*numbers, strict=True))


def close_outlines(old: list[Any], new: list[Any]) -> bool:
    """Return whether two outlines have the same traces, with as many numbers in close ranges."""
    if len(old) != len(new):
        return False
    for (kind, name, ranges), (kind_now, name_now, ranges_now) in zip(old, new, strict=True):
        if (kind, name, ranges.keys()) != (kind_now, name_now, ranges_now.keys()):
            return False
        for path, (count, *ends) in ranges.items():
            count_now, *ends_now = ranges_now[path]
            scale = max(map(abs, (*ends, *ends_now)))
            if count != count_now or any(abs(a - b) > WITHIN * scale for a, b in zip(ends, ends_now, strict=True)):
                return False
    return True


def _close_outputs(old: Any, new: Any) -> bool:
    figures = [_outline_of(output) for output in (old, new)]
    if None not in figures:
        return close_outlines(*figures)
    return figures == [None, None] and close_texts(_text(old), _text(new))


def _outline_of(output: Any) -> Any:
    """Return the outline of an output that is a figure, as data or as an image; None if it is none."""
    for kind, content in output.get("data", {}).items():
        if kind.startswith("application/vnd.plotly"):
            return outline(content)
    known = output.get("metadata", {}).get("simcluster", {}).get("outline")
    return known if known is None else json.loads(known)


def _text(output: Any) -> str:
    if "data" in output:
        return "\n".join(f"{kind}\n{text}" for kind, text in sorted(output.data.items()))
    return "\n".join(str(output.get(key, "")) for key in ("text", "ename", "evalue"))


def _parts(text: str) -> tuple[str, list[float]]:
    """Return (*text* without numbers, digests and spaces, its numbers)."""
    text = DIGEST.sub("#", text)
    numbers = [float(found.replace(",", "")) for found in NUMBER.findall(text)]
    return "".join(NUMBER.sub("0", text).replace("-", "").split()), numbers


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=WITHIN, abs_tol=1e-9)


def _arrays(value: Any, path: str) -> Iterator[tuple[str, list[float]]]:
    """Yield (path, finite numbers) of each array of numbers in *value*."""
    if isinstance(value, dict) and value.keys() >= {"bdata", "dtype"}:
        value = np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"]).tolist()
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _arrays(part, f"{path}/{key}")
    elif isinstance(value, list):
        numbers = [float(one) for one in value if isinstance(one, (int, float)) and math.isfinite(one)]
        if numbers:
            yield path, numbers
        for number, part in enumerate(value):
            if isinstance(part, (dict, list)):
                yield from _arrays(part, f"{path}/{number}")


def _range(numbers: list[float]) -> list[float]:
    return [len(numbers), *(float(f"{end:.6g}") for end in (min(numbers), max(numbers)))]
