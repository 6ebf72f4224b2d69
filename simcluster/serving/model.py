"""The model that a name stands for, as the nodes of a serving program open it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from torch import Tensor

from simcluster.inference.models.architecture import Architecture, Precision
from simcluster.inference.models.decoder import Share
from simcluster.inference.models.gguf_file import GgufFile, model_path
from simcluster.inference.models.tokenizer import CONTROL, Tokenizer
from simcluster.inference.request import Sampling


@dataclass(frozen=True)
class ModelFile:
    name: str
    file: GgufFile
    chat = None

    @property
    def architecture(self) -> Architecture:
        return self.file.architecture

    @cached_property
    def tokenizer(self) -> Tokenizer:
        value = self.file.value
        marks = [i for i, kind in enumerate(value("tokenizer.ggml.token_type")) if kind == CONTROL]
        return Tokenizer(
            value("tokenizer.ggml.tokens"),
            value("tokenizer.ggml.merges"),
            value("tokenizer.ggml.pre"),
            marks,
            value("tokenizer.ggml.unknown_token_id"),
        )

    @property
    def ends(self) -> frozenset[int]:
        return frozenset({self.file.value("tokenizer.ggml.eos_token_id")})

    def share(self, first: int, last: int, precision: Precision) -> Share:
        return Share(self.architecture, self.file.read, first, last, precision)


@lru_cache(maxsize=4)
def open_model(name: str) -> ModelFile:
    return ModelFile(name, GgufFile(model_path(name)))


def sampled(logits: Tensor, sampling: Sampling, place: int) -> int:
    return int(logits.argmax())
