"""Stand-ins for the packages llama_cpp and mlx_lm: the same calls, computed by this project's own engine.

They check what the real libraries check: positions without gaps, room in the cache, sequences in range.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch

from simcluster.lm.models.model_share import ModelShare, SequencePart
from simcluster.lm.models.open import open_model


def whole(path: str) -> ModelShare:
    file = open_model(path)
    return file.share(0, file.shape.layers)


def logits_of(share: ModelShare, tokens: Sequence[int]) -> torch.Tensor:
    (found,) = share.forward([SequencePart(share.cache(len(tokens)), torch.tensor(tokens))])
    return found


class LlamaContext:
    """A context of llama.cpp: the tokens of each sequence, and the logits of the last batch."""

    def __init__(self, model: ModelShare, params: Any) -> None:
        self.model = model
        self.params = params
        self.tokens: dict[int, list[int]] = {}
        self.logits: dict[int, np.ndarray[Any, Any]] = {}
        self.most_sequences = 0


class LlamaStandIn(ModuleType):
    """The module llama_cpp; *contexts* are all contexts so far."""

    def __init__(self) -> None:
        super().__init__("llama_cpp")
        self.contexts: list[LlamaContext] = []
        self.llama_model_default_params = SimpleNamespace
        self.llama_context_default_params = SimpleNamespace

    def llama_backend_init(self) -> None:
        self.began = True

    def llama_model_load_from_file(self, path: bytes, params: Any) -> ModelShare:
        assert self.began
        return whole(path.decode())

    def llama_model_size(self, model: ModelShare) -> int:
        return model.nbytes

    def llama_init_from_model(self, model: ModelShare, params: Any) -> LlamaContext:
        assert params.kv_unified
        self.contexts.append(LlamaContext(model, params))
        return self.contexts[-1]

    def llama_get_memory(self, context: LlamaContext) -> LlamaContext:
        return context

    def llama_free(self, context: LlamaContext) -> None:
        context.tokens.clear()

    def llama_memory_seq_rm(self, memory: LlamaContext, sequence: int, first: int, last: int) -> bool:
        assert last == -1
        memory.tokens[sequence] = memory.tokens.get(sequence, [])[: max(first, 0)]
        return True

    def llama_memory_seq_cp(self, memory: LlamaContext, source: int, to: int, first: int, last: int) -> None:
        assert first == 0 < last <= len(memory.tokens[source])
        assert not memory.tokens.get(to)
        memory.tokens[to] = memory.tokens[source][:last]

    def llama_batch_init(self, tokens: int, embd: int, sequences: int) -> SimpleNamespace:
        columns = {name: [None] * tokens for name in ("token", "pos", "n_seq_id", "logits")}
        return SimpleNamespace(**columns, n_tokens=0, seq_id=[[None] for _ in range(tokens)])

    def llama_batch_free(self, batch: SimpleNamespace) -> None:
        del batch.token

    def llama_decode(self, context: LlamaContext, batch: SimpleNamespace) -> int:
        params = context.params
        assert 0 < batch.n_tokens <= params.n_batch
        context.logits.clear()
        for row in range(batch.n_tokens):
            own = context.tokens.setdefault(batch.seq_id[row][0], [])
            if batch.pos[row] != len(own) or not 0 <= batch.seq_id[row][0] < params.n_seq_max:
                return -1
            own.append(batch.token[row])
            if batch.logits[row]:
                context.logits[row] = logits_of(context.model, own)[-1].numpy()
        held = [tokens for tokens in context.tokens.values() if tokens]
        context.most_sequences = max(context.most_sequences, len(held))
        return 0 if sum(map(len, held)) <= params.n_ctx else 1  # a shared prefix counts twice here

    def llama_get_logits_ith(self, context: LlamaContext, row: int) -> Any:
        return context.logits[row].ctypes.data_as(ctypes.POINTER(ctypes.c_float))


class MlxArray:
    """An array of mlx: indexed, converted and read by numpy."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)

    def __getitem__(self, place: Any) -> MlxArray:
        return MlxArray(self.values[place])

    def __array__(self, *args: Any, **options: Any) -> Any:
        return self.values

    def astype(self, kind: type) -> MlxArray:
        return MlxArray(self.values.astype(kind))


class MlxModel:
    """A model of mlx-lm, whose cache is the tokens so far."""

    def __init__(self, path: Path) -> None:
        self._share = whole(str(path))

    def __call__(self, inputs: MlxArray, cache: list[list[int]]) -> MlxArray:
        (tokens,) = inputs.values.tolist()
        cache[0] += tokens
        return MlxArray(logits_of(self._share, cache[0])[None, -len(tokens) :].numpy())


def trim(cache: list[list[int]], count: int) -> int:
    assert 0 < count <= len(cache[0])
    del cache[0][-count:]
    return count


def mlx_modules() -> dict[str, ModuleType]:
    """Return the modules of mlx and mlx_lm by name."""
    found = {name: ModuleType(name) for name in ("mlx", "mlx.core", "mlx_lm", "mlx_lm.utils", "mlx_lm.models")}
    cache = found["mlx_lm.models.cache"] = ModuleType("mlx_lm.models.cache")
    vars(found["mlx.core"]).update(array=MlxArray, float32=np.float32)
    vars(found["mlx_lm.utils"]).update(load_model=lambda path: (MlxModel(path), {}))
    vars(cache).update(make_prompt_cache=lambda model: [[]], trim_prompt_cache=trim)
    vars(found["mlx"]).update(core=found["mlx.core"])
    vars(found["mlx_lm.models"]).update(cache=cache)
    return found
