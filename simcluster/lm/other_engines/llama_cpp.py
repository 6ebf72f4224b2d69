"""A whole model in llama.cpp, through the package llama-cpp-python."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import llama_cpp
import numpy as np
import torch
from torch import Tensor

from simcluster.compute import HOST
from simcluster.errors import RunError
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.model_share import SequencePart

ALL_LAYERS: Final = 9999
KEPT: Final = 4
"""Sequences for each running one: others end, are kept as prefixes, or are set aside after a loss."""


@lru_cache(maxsize=2)
def _weights(path: str, layers_on_gpu: int) -> Any:
    """Return llama.cpp's model at *path*. Nodes in one process share it."""
    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL)  # it prints a page for each model
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = layers_on_gpu
    params.use_extra_bufts = _may_use_amx()
    if (found := llama_cpp.llama_model_load_from_file(path.encode(), params)) is None:
        raise RunError(f"llama.cpp cannot load {path}")
    return found


def _may_use_amx() -> bool:
    """Return False if the CPU names AMX: some virtual machines do without having it, and llama.cpp dies."""
    with suppress(OSError):
        return b"amx_tile" not in Path("/proc/cpuinfo").read_bytes()
    return True


def load(file: ModelFile, limits: EngineLimits, device: torch.device) -> LlamaModel:
    """Return the model in *file*, which may hold the sequences of *limits*."""
    return LlamaModel(_weights(str(file.path), 0 if device == HOST else ALL_LAYERS), file, limits)


class LlamaModel:
    """llama.cpp's model *weights*, with one cache for all its sequences. It is a StageModel."""

    def __init__(self, weights: Any, file: ModelFile, limits: EngineLimits) -> None:
        self.first, self.last = 0, file.shape.layers
        self.nbytes = llama_cpp.llama_model_size(weights)
        self._vocabulary = file.shape.vocabulary
        self._free = list(range(KEPT * limits.running))
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = limits.blocks * limits.block_tokens
        params.n_batch = limits.chunk_tokens + limits.running * (1 + limits.guesses)
        params.n_seq_max = len(self._free)
        params.kv_unified = True  # otherwise each sequence has an equal part of the cache
        params.n_threads = params.n_threads_batch = torch.get_num_threads()
        if (context := llama_cpp.llama_init_from_model(weights, params)) is None:
            raise RunError(f"llama.cpp has no memory for a cache of {params.n_ctx:,} tokens")
        self.context = context
        self.memory = llama_cpp.llama_get_memory(context)
        weakref.finalize(self, llama_cpp.llama_free, context)

    def cache(self, capacity: int) -> LlamaSequence:
        """Return an empty sequence. The cache has room for *capacity* tokens, as limits say."""
        if not self._free:
            raise RunError("llama.cpp: no sequence is free")
        return LlamaSequence(self, self._free.pop(), capacity)

    def release(self, number: int) -> None:
        """Empty the sequence *number*, for another one."""
        llama_cpp.llama_memory_seq_rm(self.memory, number, -1, -1)
        self._free.append(number)

    def forward(self, parts: Sequence[SequencePart], last: Sequence[int] | None = None) -> list[Tensor]:
        """Return the logits of the *last* tokens of each part, of all tokens if it is None."""
        sizes = [len(part.inputs) for part in parts]
        wanted = sizes if last is None else last
        batch = llama_cpp.llama_batch_init(sum(sizes), 0, 1)
        rows: list[list[int]] = []
        batch.n_tokens = 0
        for part, size, count in zip(parts, sizes, wanted, strict=True):
            begin, own = batch.n_tokens, _own(part)
            for offset, token in enumerate(part.inputs.tolist()):
                row = begin + offset
                batch.token[row], batch.pos[row] = token, own.length + offset
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, own.number
                batch.logits[row] = offset >= size - count
            batch.n_tokens = begin + size
            rows.append(list(range(begin + size - count, begin + size)))
        try:
            if (code := llama_cpp.llama_decode(self.context, batch)) != 0:
                raise RunError(f"llama.cpp cannot compute a batch of {batch.n_tokens} tokens: code {code}")
            found = [torch.stack([self._logits(row) for row in one]) if one else self._none() for one in rows]
        finally:
            llama_cpp.llama_batch_free(batch)
        for part, size in zip(parts, sizes, strict=True):
            _own(part).added(size)
        return found

    def _none(self) -> Tensor:
        return torch.empty(0, self._vocabulary)

    def _logits(self, row: int) -> Tensor:
        pointer = llama_cpp.llama_get_logits_ith(self.context, row)
        return torch.from_numpy(np.ctypeslib.as_array(pointer, (self._vocabulary,)).copy())


def _own(part: SequencePart) -> LlamaSequence:
    return cast("LlamaSequence", part.cache)


class LlamaSequence:
    """The sequence *number* of *model*. It is such a cache as StageModel has."""

    def __init__(self, model: LlamaModel, number: int, capacity: int) -> None:
        self.number = number
        self.capacity = capacity
        self._length = 0
        self._model = model
        weakref.finalize(self, model.release, number)

    @property
    def length(self) -> int:
        return self._length

    @length.setter
    def length(self, tokens: int) -> None:
        model = self._model
        if tokens < self._length and not llama_cpp.llama_memory_seq_rm(model.memory, self.number, tokens, -1):
            raise RunError(f"llama.cpp cannot drop tokens of this model after the first {tokens}")
        self._length = tokens

    def added(self, tokens: int) -> None:
        self._length += tokens

    def copy(self, source: LlamaSequence, tokens: int) -> None:
        llama_cpp.llama_memory_seq_cp(self._model.memory, source.number, self.number, 0, tokens)
        self._length = tokens
