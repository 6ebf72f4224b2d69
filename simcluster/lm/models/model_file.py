"""A model in a file or a folder, of any format: its architecture, its weights some rows at a time, its tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from simcluster.lm.files.error import ModelFileError, refusing, shown
from simcluster.lm.files.pieces import FileTensor, read_piece
from simcluster.lm.headers.header import ModelHeader
from simcluster.lm.models.architecture import Architecture, Precision
from simcluster.lm.models.chat import Chat
from simcluster.lm.models.decoder import DecoderShare
from simcluster.lm.models.dequantise import CONVERT
from simcluster.lm.models.runnable import architecture_of, tensor_key
from simcluster.lm.models.tokens import Tokens
from simcluster.paths.inside import open_file

ENDS = ("<|endoftext|>", "<|im_end|>")
"""Marks that end an answer in any model that has them."""


class ModelFile(ABC):
    """A model at *path*, with *tensors* in files of *folder*. An error in its file raises ModelFileError, at the latest
    when that part is used. No link in the folder is followed.
    """

    architecture: Architecture

    def __init__(self, path: Path, name: str, folder: Path, tensors: Mapping[str, FileTensor]) -> None:
        self.path, self.name, self._folder, self._tensors = path, name, folder, tensors

    def read(self, name: str, layer: int | None, first: int, last: int) -> Tensor:
        """Return in f32 the rows [*first*, *last*) of the tensor *name* of *layer* (None: of no layer)."""
        key, shape, offset = self._place(name, layer)
        place = self._tensors[key]
        first_byte, last_byte = (place.nbytes * (offset + row) // shape[0] for row in (first, last))
        with refusing(self._folder / place.file, key, "a whole tensor"), self._open(place.file) as file:
            data = read_piece(file, place.begin, place.nbytes, first_byte, last_byte)
            return torch.from_numpy(CONVERT[place.kind](data)).reshape(last - first, *shape[1:])

    @abstractmethod
    def _place(self, name: str, layer: int | None) -> tuple[str, tuple[int, ...], int]:
        """Return the tensor that has *name*, its whole shape, and where the rows of *name* begin in it."""

    def _open(self, file: str) -> BinaryIO:
        return open_file(self._folder, file)

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

    def share(self, first: int, last: int, precision: Precision = "f32") -> DecoderShare:
        """Return the layers [*first*, *last*); only their tensors are read, some rows at a time."""
        with refusing(self.path, "weights"):
            return DecoderShare(self.architecture, self.read, first, last, precision)


class HeaderFile(ModelFile):
    """A model whose *header* says all except its tokens."""

    def __init__(self, header: ModelHeader, path: Path, name: str, folder: Path) -> None:
        super().__init__(path, name, folder, header.tensors)
        self._header, self.architecture = header, architecture_of(header)

    def _place(self, name: str, layer: int | None) -> tuple[str, tuple[int, ...], int]:
        return tensor_key(self._header, name, layer), self.architecture.shapes(name), 0
