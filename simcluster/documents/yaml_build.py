"""Build data from YAML text and note the position of every key and value. Scalars follow YAML 1.2.

PyYAML's constructor is not used: it reads 1e12 as a string and `on` as true, silently keeps the
last of two equal keys, and lets ten lines of aliases fill the memory. This builder checks every
event of the parser, and does not recurse.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from simcluster.documents.yaml_errors import DEEPER, MAX_DEPTH, explained
from simcluster.errors import UsageError

KeyPath = tuple[str | int, ...]
"""The path of a value: ("links", 3, "bandwidth")."""

Mark = tuple[int, int]
"""The line and column where a key or value begins in the text, both counted from 1."""

MAX_VALUES = 1_000_000
"""Limit on the values in a document; an alias counts as all values that it repeats."""

MAX_REPEATED = 100_000
"""Limit on the values that aliases repeat: each is copied, which takes time and memory."""

MOST_KEY = 100
"""Limit on the characters of a key that an error quotes: other kinds of files may hold anything."""

_TAG = "tag:yaml.org,2002:"
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
# Python takes quadratic time to convert a long number.
_MAX_DIGITS = 1000


@dataclass(frozen=True)
class Duplicate:
    """A key that occurs twice in one mapping, at *first* and again at *mark*.

    The value at *first* is kept.
    """

    path: KeyPath
    mark: Mark
    first: Mark


def dotted(path: KeyPath) -> str:
    """Return *path* in dotted form: links[3].bandwidth for ("links", 3, "bandwidth")."""
    text = ""
    for part in path:
        if isinstance(part, str) and len(part) > MOST_KEY:
            part = f"{part[: MOST_KEY - 3]}..."
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def resolve(text: str) -> Any:
    """Return the value of a plain scalar in YAML 1.2's core schema.

    Raise ValueError for a number of more than _MAX_DIGITS characters.
    """
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] not in "-+.0123456789":
        return text
    if len(text) > _MAX_DIGITS and (_FLOAT.fullmatch(text) or _INT.fullmatch(text)):
        raise ValueError(f"a number of {len(text)} characters")
    if _INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text) or _INFINITY.fullmatch(text):
        return float(text.lower().replace(".inf", "inf"))
    return float("nan") if text in _NAN else text


@dataclass
class _OpenCollection:
    """A list or mapping that has begun and not ended; the next value of a mapping is that of *key*.

    If *skips*, it is the value of a duplicate key: it is read, but no positions in it are kept.
    """

    value: Any
    path: KeyPath
    anchor: str | None
    skips: bool
    key: str | None = None
    key_mark: Mark = (0, 0)
    marks: dict[str, Mark] = field(default_factory=dict)


class Builder:
    """The *data* of a document, the positions of its *keys* and *values*, and its *duplicates*.

    The constructor raises UsageError, naming *file*, if the text is not YAML or exceeds a limit.
    """

    def __init__(self, text: str, file: str | None) -> None:
        self.file = file
        self.data: Any = None
        self.keys: dict[KeyPath, Mark] = {}
        self.values: dict[KeyPath, Mark] = {}
        self.duplicates: list[Duplicate] = []
        self._stack: list[_OpenCollection] = []
        # anchor -> (its value, the number of values in it, its nesting depth)
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self._count = self._repeated = 0
        documents = 0
        for event in self._events(text):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refuse(event, "a second document", "one document in a file")
            elif isinstance(event, yaml.ScalarEvent):
                value = self._scalar(event)
                self._add(event, value)
                if event.anchor:
                    self._anchors[event.anchor] = (value, 1, 0)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._open(event)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                done = self._stack.pop()
                if done.anchor:
                    self._anchors[done.anchor] = (done.value, *_extent(done.value))

    def _events(self, text: str) -> Iterator[Any]:
        try:
            yield from yaml.parse(text, Loader=yaml.CSafeLoader)
        except yaml.MarkedYAMLError as error:
            raise UsageError(explained(error, text, self.file)) from None
        except (yaml.YAMLError, UnicodeError) as error:
            words = str(getattr(error, "reason", error))
            raise UsageError("YAML syntax", words, "text that YAML allows", self.file) from None

    def _open(self, event: Any) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if mapping else "seq")):
            raise self._refuse(event, f"the tag {event.tag}", "no tag")
        if len(self._stack) >= MAX_DEPTH:
            raise self._refuse(event, *DEEPER)
        value: Any = {} if mapping else []
        path, skips = self._add(event, value)
        self._stack.append(_OpenCollection(value, path, event.anchor, skips))

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise self._refuse(event, f"the alias *{event.anchor}", "an anchor defined before it")
        value, count, depth = self._anchors[event.anchor]
        self._count += count
        self._repeated += count
        if self._repeated > MAX_REPEATED:
            raise self._refuse(event, "aliases that repeat too much", f"at most {MAX_REPEATED} values")
        if len(self._stack) + depth > MAX_DEPTH:
            raise self._refuse(event, *DEEPER)
        # Add a copy, so that an override of the value in one place does not change the other.
        self._add(event, copy.deepcopy(value))

    def _add(self, event: Any, value: Any) -> tuple[KeyPath, bool]:
        """Add *value* to the innermost open collection; return its path, and whether it is skipped.

        In a mapping that has no pending key, *value* becomes the pending key.
        """
        mark = (event.start_mark.line + 1, event.start_mark.column + 1)
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._refuse(event, "more values", f"at most {MAX_VALUES}")
        if not self._stack:
            self.data = value
            self.values[()] = mark
            return (), False
        top = self._stack[-1]
        if isinstance(top.value, list):
            path: KeyPath = (*top.path, len(top.value))
            top.value.append(value)
        elif top.key is None:
            if not isinstance(event, yaml.ScalarEvent):
                raise self._refuse(event, "a key that is not text", "text")
            top.key, top.key_mark = event.value, mark
            return top.path, top.skips
        else:
            key, top.key = top.key, None
            path = (*top.path, key)
            if key in top.value:
                self.duplicates.append(Duplicate(path, top.key_mark, top.marks[key]))
                return path, True
            top.value[key], top.marks[key] = value, top.key_mark
            if not top.skips:
                self.keys[path] = top.key_mark
        if not top.skips:
            self.values[path] = mark
        return path, top.skips

    def _scalar(self, event: Any) -> Any:
        top = self._stack[-1] if self._stack else None
        is_key = top is not None and isinstance(top.value, dict) and top.key is None
        tag = None if event.tag in (None, "!") else event.tag
        if tag not in (None, _TAG + "str"):
            raise self._refuse(event, f"the tag {tag}", "no tag, or !!str")
        if tag is None and event.implicit[0] and not is_key:
            try:
                return resolve(event.value)
            except ValueError as error:
                raise self._refuse(event, str(error), "a shorter one") from None
        return event.value

    def _refuse(self, event: Any, found: str, expected: str) -> UsageError:
        mark = event.start_mark
        key = dotted(self._stack[-1].path[:6]) if self._stack else ""
        return UsageError(key or "document", found, expected, self.file, mark.line + 1, mark.column + 1)


def _extent(value: Any) -> tuple[int, int]:
    """Return the number of values in *value* and its nesting depth."""
    if not isinstance(value, (dict, list)):
        return 1, 0
    parts = [_extent(item) for item in (value.values() if isinstance(value, dict) else value)]
    return 1 + sum(count for count, _ in parts), 1 + max((depth for _, depth in parts), default=0)
