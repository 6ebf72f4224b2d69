"""A file of the weights of a whole model, for a process that does not hold all of them in
memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import safetensors.torch
import torch
from torch import Tensor

from simcluster.paths.spool import PIECE_BYTES, Spool

WEIGHTS_ORDER = "names"
"""The key in the metadata of a file of weights under which the names of the weights are listed in
order.
"""


class WeightsFile:
    """A safetensors file of tensors with *names*, and with the dtypes and shapes of *like*; and of
    *others*, which are no weights.

    Tensors are written and read by their index in *names*, then in *others*. The format sorts
    tensors, so the file's metadata lists *names* in the model's order, on which the hash of the
    weights depends. Raise KeyError if the format lacks a tensor's dtype (complex128).
    """

    def __init__(
        self, names: Sequence[str], like: Sequence[Tensor], others: Mapping[str, Tensor] | None = None
    ) -> None:
        self.content, self._like = Spool(), like
        whole = dict(zip(names, like, strict=True)) | dict(others or {})
        header, starts = _header(whole, names)
        self.content.write(0, header)
        self._starts = [starts[name] for name in whole]
        self._missing = set(range(len(names)))

    @property
    def is_complete(self) -> bool:
        """Whether every tensor of *names* has been written."""
        return not self._missing

    def put(self, tensors: Mapping[int, Tensor]) -> None:
        """Write *tensors*, which are keyed by index."""
        for place, tensor in tensors.items():
            octets = _octets(tensor.detach().cpu().contiguous())
            for start in range(0, len(octets), PIECE_BYTES):
                piece = octets[start : start + PIECE_BYTES].clone()
                self.content.write(self._starts[place] + start, piece.numpy().data)
            self._missing.discard(place)

    def read_into(self, place: int, target: Tensor) -> None:
        """Overwrite *target*, which must be contiguous, with the tensor at index *place*."""
        octets = _octets(target.detach())
        piece = torch.empty(min(len(octets), PIECE_BYTES), dtype=torch.uint8)
        for start in range(0, len(octets), PIECE_BYTES):
            part = piece[: len(octets) - start]
            self.content.read_into(self._starts[place] + start, part.numpy().data)
            octets[start : start + PIECE_BYTES] = part

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors of *names* in order, reading one at a time."""
        for place, like in enumerate(self._like):
            tensor = torch.empty(like.shape, dtype=like.dtype)
            self.read_into(place, tensor)
            yield tensor


def weights_file(
    names: Sequence[str], tensors: Sequence[Tensor], others: Mapping[str, Tensor] | None = None
) -> WeightsFile | None:
    """Return a file with *tensors* and *others*, or None if the format lacks a tensor's dtype."""
    try:
        file = WeightsFile(names, tensors, others)
    except KeyError:
        return None
    file.put(dict(enumerate([*tensors, *(others or {}).values()])))
    return file


def _octets(tensor: Tensor) -> Tensor:
    """Return the bytes of a contiguous *tensor*, as a view.

    Callers copy pieces of it, since a numpy array of the view would keep the whole memory alive.
    """
    return tensor.view(-1).view(torch.uint8)


def _header(like: Mapping[str, Tensor], names: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """Return (the bytes before the tensors, the start of each tensor), as safetensors writes them.

    The library knows the format's names of dtypes and its order, but writes only tensors in memory.
    So it is called with empty tensors, and the shapes and offsets are filled in here.
    """
    empty = {name: torch.empty(0, dtype=tensor.dtype) for name, tensor in like.items()}
    known = safetensors.torch.save(empty, {WEIGHTS_ORDER: json.dumps(list(names))})
    entries = json.loads(known[8 : 8 + int.from_bytes(known[:8], "little")])
    end = 0
    for name, entry in entries.items():
        if name in like:
            start, end = end, end + like[name].nbytes
            entry |= {"shape": list(like[name].shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    before = len(text).to_bytes(8, "little") + text
    return before, {name: len(before) + entries[name]["data_offsets"][0] for name in like}
