"""The architecture of a decoder: sizes and kinds, without weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Pairs = Literal["interleaved", "half"]
Precision = Literal["f32", "bf16", "int8"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """The sizes of a decoder. *rope_base* None: learned positions and LayerNorm as in GPT-2; else RoPE and RMSNorm as
    in Llama, with *pairs* of numbers rotated: neighbours (GGUF) or halves of a head (Hugging Face).
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward: int
    vocabulary: int
    context: int
    gated: bool
    tied: bool
    rope_base: float | None = None
    pairs: Pairs = "interleaved"
    epsilon: float = 1e-5

    def shapes(self, name: str) -> tuple[int, ...]:
        """Return the shape of the tensor *name*; a layer's tensors are called without their layer."""
        kv, all_heads = self.kv_heads * self.head_width, self.heads * self.head_width
        table = (self.vocabulary, self.width)
        return {
            "embedding": table,
            "position": (self.context, self.width),
            "output": table,
            "query": (all_heads, self.width),
            "key": (kv, self.width),
            "value": (kv, self.width),
            "merge": (self.width, all_heads),
            "gate": (self.feed_forward, self.width),
            "up": (self.feed_forward, self.width),
            "down": (self.width, self.feed_forward),
        }.get(name, (self.width,))

    def layer_names(self) -> list[str]:
        """Return the names of a layer's tensors."""
        names = ["norm_attention", "query", "key", "value", "merge", "norm_feed", "up", "down"]
        return [*names, "gate"] if self.gated else names

    def names(self) -> Iterator[tuple[str, int | None]]:
        """Yield the names of all tensors, each with its layer; None: of no layer."""
        yield from ((name, None) for name in ("embedding", "norm"))
        if not self.tied:
            yield "output", None
        if self.rope_base is None:
            yield "position", None
        yield from ((name, layer) for layer in range(self.layers) for name in self.layer_names())
