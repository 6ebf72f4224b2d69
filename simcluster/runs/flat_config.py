"""A resolved experiment as a flat mapping with the dotted keys of `--set`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec


def flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted key -> scalar for *document*, in its order.

    An empty mapping or list, and a list of scalars, becomes a JSON string.
    """
    return dict(_leaves("", document))


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}" if key else str(name), inner)
    elif isinstance(value, (list, tuple)) and any(isinstance(inner, (Mapping, list)) for inner in value):
        for name, inner in zip(names_of(value), value, strict=True):
            yield from _leaves(f"{key}.{name}", inner)
    elif isinstance(value, (Mapping, list, tuple)):
        yield key, msgspec.json.encode(value).decode()
    else:
        yield key, value


def names_of(items: Sequence[Any]) -> list[str]:
    """Return names for the items of a list: "a-b" for a link between a and b, the index for others.

    If names repeat, all are indices.
    """
    names = [
        "-".join(map(str, item["between"]))
        if isinstance(item, Mapping) and isinstance(item.get("between"), (list, tuple))
        else str(number)
        for number, item in enumerate(items)
    ]
    return names if len(set(names)) == len(names) else [str(number) for number in range(len(items))]
