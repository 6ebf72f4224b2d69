"""Tensors in the safetensors files of a folder, read some rows at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from simcluster.inference.files.error import ModelFileError, refusing
from simcluster.inference.files.pieces import read_piece
from simcluster.inference.headers.header import TensorPlace
from simcluster.paths.inside import open_file

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class TensorFiles:
    """The tensors at *places* in files of *folder*. No link in the folder is followed. Raises ModelFileError."""

    def __init__(self, folder: Path, places: Mapping[str, TensorPlace]) -> None:
        self._folder, self._places = folder, places

    def check(self, key: str, shape: Sequence[int]) -> TensorPlace:
        """Return where the tensor *key* is, which has to have this *shape* and a type of numbers."""
        place = self._place(key)
        path = self._folder / place.file
        if place.shape != tuple(shape):
            raise ModelFileError(path, key, f"the shape {place.shape}", f"{tuple(shape)}")
        if place.kind not in _DTYPES:
            raise ModelFileError(path, key, f"the type {place.kind!r}", f"one of {', '.join(_DTYPES)}")
        return place

    def read(self, key: str, shape: Sequence[int], first: int, last: int) -> Tensor:
        """Return the rows [*first*, *last*) of the tensor *key* in f32. Its whole shape has to be *shape*."""
        place = self.check(key, shape)
        row_bytes = place.nbytes // max(1, shape[0])
        with refusing(self._folder / place.file, key, "a whole tensor"), open_file(self._folder, place.file) as file:
            data = read_piece(file, place.begin, place.nbytes, first * row_bytes, last * row_bytes)
        return torch.from_numpy(data).view(_DTYPES[place.kind]).reshape(last - first, *shape[1:]).float()

    def _place(self, key: str) -> TensorPlace:
        if key not in self._places:
            raise ModelFileError(self._folder, key, "no such tensor", "one in its safetensors files")
        return self._places[key]
