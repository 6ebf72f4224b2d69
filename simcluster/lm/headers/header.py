"""The header of a model, of any format: its shape, its facts, and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simcluster.lm.files.error import ModelFileError, shown
from simcluster.lm.files.pieces import FileTensor
from simcluster.lm.plan.shape import ModelShape

MOST, MOST_LAYERS, MOST_CONTEXT, MOST_NAME = 10**7, 1024, 2**31, 60
"""Limits on the numbers of a shape, its layers, its context, and the characters of its name: no model exceeds them."""


@dataclass(frozen=True)
class ModelFacts:
    """The *values* of a model's *file*, by key; reading one remembers its key in *read*. *prefix*: that of all keys."""

    file: Path
    values: Mapping[str, Any]
    prefix: str = ""
    read: set[str] = field(default_factory=set)

    def first(self, *keys: str) -> tuple[str, Any]:
        """Return the first of *keys* with a value, and that; the first one and None if none has."""
        names = [self.prefix + key for key in keys]
        self.read.update(names)
        return next(((key, self.values[key]) for key in names if self.values.get(key) is not None), (names[0], None))

    def count(self, *keys: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        """Return the whole number at the first of *keys*. Raise ModelFileError for another value."""
        key, found = self.first(*keys)
        found = default if found is None else found
        if type(found) is not int or not least <= found <= most:
            raise self.wrong(key, found, f"a whole number from {least} to {most:,}")
        return found

    def flag(self, *keys: str, default: bool = False) -> bool:
        key, found = self.first(*keys)
        if found is not None and not isinstance(found, bool):
            raise self.wrong(key, found, "true or false")
        return default if found is None else found

    def positive(self, *keys: str, default: object) -> float:
        """Return the number above 0 at the first of *keys*, as a float."""
        key, found = self.first(*keys)
        found = default if found is None else found
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < 1e300:
            raise self.wrong(key, found, "a number above 0")
        return float(found)

    def wrong(self, key: str, found: object, expected: str) -> ModelFileError:
        said = "nothing" if found is None else shown(found)
        return ModelFileError(self.file, key[:60], said, expected)


@dataclass(frozen=True)
class ModelHeader:
    """A model's *shape*; its *facts*, of a GGUF file if *is_gguf*, else of a config.json; and its *tensors* by name,
    none if there is nothing but a config.json.
    """

    shape: ModelShape
    facts: ModelFacts
    tensors: Mapping[str, FileTensor]
    is_gguf: bool


def printable(name: object) -> str:
    """Return *name*, which may come from a file, as a shape has it: short, and nothing but characters to print."""
    return "".join(filter(str.isprintable, str(name)))[:MOST_NAME] or "model"
