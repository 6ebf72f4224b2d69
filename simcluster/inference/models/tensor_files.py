"""Tensors by name in the safetensors files of a folder, of which some rows are read at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from simcluster.inference.files.error import ModelFileError, refusing
from simcluster.inference.files.pieces import read_piece
from simcluster.inference.files.safetensors import ITEM_BYTES, Entry, read_entries
from simcluster.paths.inside import open_file

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class TensorFiles:
    """The tensors of *names*, files in *folder*. No link in the folder is followed. Raises ModelFileError."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._entries: dict[str, tuple[str, Entry]] = {}
        for name in names:
            with refusing(folder / name, "file", "a safetensors file"), open_file(folder, name) as file:
                entries = read_entries(file)
            for key, entry in entries.items():
                if key in self._entries:
                    raise ModelFileError(folder / name, key, f"a second one, after {self._entries[key][0]}", "one")
                self._entries[key] = name, entry

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def shape(self, key: str) -> tuple[int, ...]:
        """Return the shape of the tensor *key*."""
        return self._entry(key)[1].shape

    def read(self, key: str, shape: Sequence[int], first: int, last: int) -> Tensor:
        """Return the rows [*first*, *last*) of the tensor *key* in f32. Its whole shape has to be *shape*."""
        name, entry = self._entry(key)
        path = self._folder / name
        if entry.shape != tuple(shape):
            raise ModelFileError(path, key, f"the shape {entry.shape}", f"{tuple(shape)}")
        if entry.dtype not in _DTYPES:
            raise ModelFileError(path, key, f"the type {entry.dtype[:20]!r}", f"one of {', '.join(_DTYPES)}")
        if not entry.fits:
            raise ModelFileError(path, key, f"{entry.end - entry.begin:,} bytes", f"those of {entry.shape}")
        size = entry.end - entry.begin
        row_bytes = size // max(1, shape[0])
        with refusing(path, key, "a whole tensor"), open_file(self._folder, name) as file:
            data = read_piece(file, entry.begin, size, first * row_bytes, last * row_bytes)
        assert row_bytes % ITEM_BYTES[entry.dtype] == 0
        return torch.from_numpy(data).view(_DTYPES[entry.dtype]).reshape(last - first, *shape[1:]).float()

    def _entry(self, key: str) -> tuple[str, Entry]:
        if key not in self._entries:
            raise ModelFileError(self._folder, key, "no such tensor", "one in its safetensors files")
        return self._entries[key]
