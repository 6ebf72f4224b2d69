"""A model as the server knows it: its words, where its parts are, and how fast it should be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from simcluster.serving.front import Front
from simcluster.serving.web.words import Decoder


class Language(Protocol):
    """The texts of a model. *ends* are the tokens that end an answer."""

    ends: frozenset[int]

    @property
    def has_chat(self) -> bool: ...

    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: Sequence[int]) -> str: ...
    def octets(self, tokens: Sequence[int]) -> bytes: ...
    def decoder(self) -> Decoder: ...

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the tokens of a conversation, if it has a chat template. Raise UsageError for one it refuses."""


@dataclass(frozen=True, slots=True)
class Part:
    """One node's part of the model. *layers* is [first, last)."""

    node: str
    layers: tuple[int, int]
    weights_bytes: int
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class Predicted:
    """The latencies of one request on an idle cluster."""

    ttft_s: float
    tokens_per_s: float


@dataclass(frozen=True)
class Served:
    """A loaded model. *predict* takes the numbers of tokens of a prompt and its answer."""

    name: str
    context: int
    vocabulary: int
    language: Language
    placement: str
    backend: str
    parts: tuple[Part, ...]
    predict: Callable[[int, int], Predicted | None] = lambda prompt, answer: None
    created: int = 0


@dataclass
class Site:
    """The desk and the model, which all routes share."""

    front: Front
    served: Served
    pages: int = 0
    """Pages that are open and follow the load."""
