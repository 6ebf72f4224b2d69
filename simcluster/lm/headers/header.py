"""The header of a model in any format: its shape, its metadata, and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simcluster.lm.files.error import ModelFileError, shown
from simcluster.lm.files.pieces import FileTensor
from simcluster.lm.plan.shape import ModelShape

MOST = 10**7
MOST_LAYERS = 1024
MOST_EXPERTS = 4096
MOST_CONTEXT = 2**31
MOST_NAME = 60
"""Limits on the numbers of a shape, its layers, its experts, its context, and the length of a name.

No known model exceeds them.
"""


@dataclass(frozen=True)
class ModelFacts:
    """The *values* in a model's *file*, by key.

    *read* collects the keys that have been read. *prefix* is prepended to every key.
    """

    file: Path
    values: Mapping[str, Any]
    prefix: str = ""
    read: set[str] = field(default_factory=set)

    def first(self, *keys: str) -> tuple[str, Any]:
        """Return (key, value) of the first of *keys* that has a value, or (first key, None)."""
        names = [self.prefix + key for key in keys]
        self.read.update(names)
        return next(((key, self.values[key]) for key in names if self.values.get(key) is not None), (names[0], None))

    def count(self, *keys: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        """Return the whole number at the first of *keys* with a value, else *default*.

        Raise ModelFileError for a value that is not a whole number from *least* to *most*.
        """
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

    def positive(self, *keys: str, default: object, most: float = 1e300) -> float:
        """Return the positive number at the first of *keys* with a value, else *default*.

        Raise ModelFileError for a value that is not a number above 0 and at most *most*.
        """
        key, found = self.first(*keys)
        found = default if found is None else found
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found <= most:
            raise self.wrong(key, found, "a number above 0" + f", at most {most:,}" * (most < 1e300))
        return float(found)

    def wrong(self, key: str, found: object, expected: str) -> ModelFileError:
        said = "nothing" if found is None else shown(found)
        return ModelFileError(self.file, key[:60], said, expected)


@dataclass(frozen=True)
class ModelHeader:
    """A model's *shape*, the *facts* of its file, and its *tensors* by name.

    The facts come from a GGUF file if *is_gguf*, otherwise from a config.json. *tensors* is empty
    if there is only a config.json.
    """

    shape: ModelShape
    facts: ModelFacts
    tensors: Mapping[str, FileTensor]
    is_gguf: bool


def printable(name: object) -> str:
    """Return *name*, which may come from a file, shortened and without unprintable characters."""
    return "".join(filter(str.isprintable, str(name)))[:MOST_NAME] or "model"
