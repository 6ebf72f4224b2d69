"""A model in a file or a folder, of any format: its architecture, its weights some rows at a time, its tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from torch import Tensor

from simcluster.inference.files.error import ModelFileError, refusing, shown
from simcluster.inference.models.architecture import Architecture, Precision
from simcluster.inference.models.chat import Chat
from simcluster.inference.models.decoder import Share
from simcluster.inference.models.tokens import Tokens

ENDS = ("<|endoftext|>", "<|im_end|>")
"""Marks that end an answer in any model that has them."""


class ModelFile(ABC):
    """A model at *path*. An error in its file raises ModelFileError, at the latest when that part is used."""

    architecture: Architecture

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    @abstractmethod
    def read(self, name: str, layer: int | None, first: int, last: int) -> Tensor:
        """Return in f32 the rows [*first*, *last*) of the tensor *name* of *layer* (None: of no layer)."""

    @abstractmethod
    def _tokenizer(self) -> Tokens | None: ...

    @abstractmethod
    def _template(self) -> str | None: ...

    @abstractmethod
    def _ends(self) -> Sequence[object]:
        """Return the ids that the file gives for tokens that end an answer."""

    @cached_property
    def tokenizer(self) -> Tokens | None:
        """The tokens, None if the file has none."""
        with refusing(self.path, "tokenizer"):
            return self._tokenizer()

    @cached_property
    def chat(self) -> Chat | None:
        """The chat template, None if the file has none."""
        with refusing(self.path, "chat template", "ChatML"):
            template = self._template()
            return None if template is None or self.tokenizer is None else Chat(template, self.tokenizer)

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        marks = {} if self.tokenizer is None else self.tokenizer.marks
        found = [one for one in self._ends() if one is not None]
        for one in found:
            if type(one) is not int or not 0 <= one < self.architecture.vocabulary:
                raise ModelFileError(self.path, "end of text", shown(one), "a token's id")
        return frozenset([*(one for one in found if isinstance(one, int)), *(marks[n] for n in ENDS if n in marks)])

    def share(self, first: int, last: int, precision: Precision = "f32") -> Share:
        """Return the layers [*first*, *last*); only their tensors are read, some rows at a time."""
        with refusing(self.path, "weights"):
            return Share(self.architecture, self.read, first, last, precision)
