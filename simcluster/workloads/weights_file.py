"""The weights of a whole model in a file, for a process that does not hold them all in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import safetensors.torch
import torch
from torch import Tensor

from simcluster.paths.spool import PIECE_BYTES, Spool

WEIGHTS_ORDER = "names"
"""Key of the tensors' names, in order, in the metadata of a file of weights."""


class WeightsFile:
    """A safetensors file of tensors with *names*, dtypes and shapes *like* these; each is put and read by its place.

    The format sorts tensors; their order, which the hash of the weights depends on, is in the file's metadata. Raises
    KeyError if the format lacks the dtype of one (complex128).
    """

    def __init__(self, names: Sequence[str], like: Sequence[Tensor]) -> None:
        self.content, self._like = Spool(), like
        header, starts = _header(names, like)
        self.content.write(0, header)
        self._starts = [starts[name] for name in names]
        self._missing = set(range(len(names)))

    @property
    def is_complete(self) -> bool:
        """Whether every tensor has been put."""
        return not self._missing

    def put(self, tensors: Mapping[int, Tensor]) -> None:
        """Put *tensors*, by their places."""
        for place, tensor in tensors.items():
            octets = _octets(tensor.detach().cpu().contiguous())
            for start in range(0, len(octets), PIECE_BYTES):
                piece = octets[start : start + PIECE_BYTES].clone()
                self.content.write(self._starts[place] + start, piece.numpy().data)
            self._missing.discard(place)

    def read_into(self, place: int, target: Tensor) -> None:
        """Overwrite *target*, which is contiguous, with the tensor at *place*."""
        octets = _octets(target.detach())
        piece = torch.empty(min(len(octets), PIECE_BYTES), dtype=torch.uint8)
        for start in range(0, len(octets), PIECE_BYTES):
            part = piece[: len(octets) - start]
            self.content.read_into(self._starts[place] + start, part.numpy().data)
            octets[start : start + PIECE_BYTES] = part

    def tensors(self) -> Iterator[Tensor]:
        """Read all tensors, one at a time."""
        for place, like in enumerate(self._like):
            tensor = torch.empty(like.shape, dtype=like.dtype)
            self.read_into(place, tensor)
            yield tensor


def weights_file(names: Sequence[str], tensors: Sequence[Tensor]) -> WeightsFile | None:
    """Return a file with *tensors*; None if the format lacks the dtype of one."""
    try:
        file = WeightsFile(names, tensors)
    except KeyError:
        return None
    file.put(dict(enumerate(tensors)))
    return file


def _octets(tensor: Tensor) -> Tensor:
    """Return the bytes of a contiguous *tensor*. They pass through a small buffer: numpy would pin their memory."""
    return tensor.view(-1).view(torch.uint8)


def _header(names: Sequence[str], like: Sequence[Tensor]) -> tuple[bytes, dict[str, int]]:
    """Return (the bytes before the tensors, the start of each tensor), as safetensors writes them.

    The library has the format's names of dtypes and its order, but writes only what is in memory: it gets empty ones.
    """
    empty = {name: torch.empty(0, dtype=tensor.dtype) for name, tensor in zip(names, like, strict=True)}
    known = safetensors.torch.save(empty, {WEIGHTS_ORDER: json.dumps(list(names))})
    entries = json.loads(known[8 : 8 + int.from_bytes(known[:8], "little")])
    by_name, end = dict(zip(names, like, strict=True)), 0
    for name, entry in entries.items():
        if name in by_name:
            start, end = end, end + by_name[name].nbytes
            entry |= {"shape": list(by_name[name].shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    before = len(text).to_bytes(8, "little") + text
    return before, {name: len(before) + entries[name]["data_offsets"][0] for name in names}
