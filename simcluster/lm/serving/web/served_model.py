"""A model as the server knows it: its tokenizer, its parts on nodes, and its predicted speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from simcluster.lm.serving.desk.request_broker import RequestBroker
from simcluster.lm.serving.setup import PlacementState
from simcluster.lm.serving.web.answer_text import Decoder


class Language(Protocol):
    """The tokenizer and chat template of a model. *ends* are the tokens that end an answer."""

    ends: frozenset[int]

    @property
    def has_chat(self) -> bool: ...

    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: Sequence[int]) -> str: ...
    def octets(self, tokens: Sequence[int]) -> bytes: ...
    def decoder(self, begins: bool) -> Decoder:
        """Return a decoder of tokens that begin a text, or else continue one."""

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the tokens of a conversation. Call this only if `has_chat`.

        Raise UsageError for a conversation that the chat template refuses.
        """

    def json_grammar(self, schema: Mapping[str, Any], *, or_text: bool = False) -> str:
        """Return the grammar of JSON that conforms to *schema*, for SamplingRules.

        If *or_text*, it also allows text that does not begin with {. Raise UsageError if the
        grammar cannot be followed, or if a required library is not installed.
        """


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One node's part of the model, with the *layers* [first, last).

    *role* is "prefill" or "decode" for a node that does only that.
    """

    node: str
    layers: tuple[int, int]
    weights_bytes: int
    cache_bytes: int
    role: str = ""


@dataclass(frozen=True, slots=True)
class PredictedLatency:
    """The predicted latency of one request on an idle cluster."""

    ttft_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class LostNode:
    """A lost node, and the reason *why* it is lost; "" if that is unknown."""

    node: str
    why: str


@dataclass(frozen=True)
class ServedPlacement:
    """A model on its nodes. *unused* are the nodes that have no part but are not lost.

    *predict* is called with the numbers of tokens of a prompt and of its answer. *predicted_for*
    are the devices whose speed it predicts, although this machine computes in their place.
    """

    kind: str
    context: int
    parts: tuple[ModelPart, ...]
    predict: Callable[[int, int], PredictedLatency | None]
    lost: tuple[LostNode, ...] = ()
    unused: tuple[str, ...] = ()
    predicted_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServedModel:
    """A loaded model. *place* describes a placement; it takes None for the first one."""

    name: str
    vocabulary: int
    language: Language
    backend: str
    place: Callable[[PlacementState | None], ServedPlacement]
    created: int = 0


class Site:
    """The broker *front* and the model *served*, which all routes share.

    *pages* is the number of open pages that follow the load.
    """

    def __init__(self, front: RequestBroker, served: ServedModel) -> None:
        self.front = front
        self.served = served
        self.pages = 0
        self._placement: tuple[PlacementState | None, ServedPlacement] = None, served.place(None)

    @property
    def placement(self) -> ServedPlacement:
        """The current placement."""
        placed, found = self._placement
        if self.front.placed != placed:
            placed = self.front.placed
            found = self.served.place(placed)
            self._placement = placed, found
        return found
