"""A resolved experiment as one level of dotted keys, named as `--set` names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec


def flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """{dotted key: scalar} of *document*, in its order; a list of scalars is one JSON text, as is what is empty."""
    return dict(_leaves("", document))


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}" if key else str(name), inner)
    elif isinstance(value, (list, tuple)) and any(isinstance(inner, (Mapping, list)) for inner in value):
        for name, inner in zip(_names(value), value, strict=True):
            yield from _leaves(f"{key}.{name}", inner)
    elif isinstance(value, (Mapping, list, tuple)):
        yield key, msgspec.json.encode(value).decode()
    else:
        yield key, value


def _names(items: Sequence[Any]) -> list[str]:
    """Links by their two ends, anything else by number; of those that would have one name, all by number."""
    names = [
        "-".join(map(str, item["between"]))
        if isinstance(item, Mapping) and isinstance(item.get("between"), (list, tuple))
        else str(number)
        for number, item in enumerate(items)
    ]
    return names if len(set(names)) == len(names) else [str(number) for number in range(len(items))]
