"""A model as the server knows it: its words, where its parts are now, and how fast it should be there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from simcluster.lm.serving.desk.front import RequestBroker
from simcluster.lm.serving.setup import PlacementState
from simcluster.lm.serving.web.words import Decoder


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
class ModelPart:
    """One node's part of the model. *layers* is [first, last). *role*: "prefill" or "decode" if it does one of them."""

    node: str
    layers: tuple[int, int]
    weights_bytes: int
    cache_bytes: int
    role: str = ""


@dataclass(frozen=True, slots=True)
class PredictedLatency:
    """The latencies of one request on an idle cluster."""

    ttft_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node that is lost, and *why*; "" if that is unknown."""

    node: str
    why: str


@dataclass(frozen=True)
class ServedPlacement:
    """A model on its nodes. *predict* takes the numbers of tokens of a prompt and its answer. *unused*: nodes that have
    no part, and are not lost.
    """

    kind: str
    context: int
    parts: tuple[ModelPart, ...]
    predict: Callable[[int, int], PredictedLatency | None]
    lost: tuple[LostNode, ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServedModel:
    """A loaded model. *place* makes the description of a placement, by default of the first one."""

    name: str
    vocabulary: int
    language: Language
    backend: str
    place: Callable[[PlacementState | None], ServedPlacement]
    created: int = 0


class Site:
    """The desk and the model, which all routes share. *pages* are open and follow the load."""

    def __init__(self, front: RequestBroker, served: ServedModel) -> None:
        self.front, self.served, self.pages = front, served, 0
        self._placement: tuple[PlacementState | None, ServedPlacement] = None, served.place(None)

    @property
    def placement(self) -> ServedPlacement:
        """The placement in force."""
        placed, found = self._placement
        if self.front.placed != placed:
            placed = self.front.placed
            found = self.served.place(placed)
            self._placement = placed, found
        return found
