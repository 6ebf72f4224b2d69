"""`python -m tools.benchmarks.decode`: tokens of a model of SmolLM2's shape, relative to a plain torch loop.

The loop does for one sequence what any decoder must: `F.linear`, `F.rms_norm`, a rotation from a table,
`F.scaled_dot_product_attention` over a cache that exists already. Weights are random; both sides have the same ones and
one core. docs/inference.md has the ratios.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from simcluster.lm.models.architecture import Architecture, Precision
from simcluster.lm.models.decoder import DecoderShare, SequencePart
from simcluster.process.intra_op import use_one_thread
from tools.benchmarks.timing import Work, compare

SMOLLM2 = Architecture(30, 576, 9, 3, 64, 1536, 49152, 2048, gated=True, tied=True, rope_base=1e5, pairs="half")
CONTEXT, TOKENS, PROMPT = 256, 8, 512


def weights(a: Architecture) -> dict[tuple[str, int | None], Tensor]:
    """Return random weights of *a* by name and layer."""
    generator = torch.Generator().manual_seed(0)
    names = [("embedding", None), ("norm", None), *((name, i) for i in range(a.layers) for name in a.layer_names())]
    return {key: torch.randn(a.shapes(key[0]), generator=generator) * 0.02 for key in names}


class Loop:
    """The plain loop over one sequence."""

    def __init__(self, a: Architecture, tensors: dict[tuple[str, int | None], Tensor]) -> None:
        self.a, self.weights = a, tensors
        size = (a.layers, 1, a.kv_heads, a.context, a.head_width)
        self.keys, self.values, self.length = torch.zeros(size), torch.zeros(size), 0
        steps = 1 / a.rope_base ** (torch.arange(0, a.head_width, 2) / a.head_width)  # type: ignore[operator]
        angles = torch.outer(torch.arange(a.context), steps)
        self.cosines, self.sines = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def rotated(self, heads: Tensor, span: slice) -> Tensor:
        first, second = heads.chunk(2, -1)
        return heads * self.cosines[span] + torch.cat((-second, first), -1) * self.sines[span]

    @torch.no_grad()
    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the last of *tokens*."""
        a, w, count = self.a, self.weights, len(tokens)
        span, end = slice(self.length, self.length + count), self.length + count
        stream = functional.embedding(tokens, w["embedding", None])
        for i in range(a.layers):
            x = functional.rms_norm(stream, (a.width,), w["norm_attention", i], a.epsilon)
            query, key, value = (
                functional.linear(x, w[name, i]).view(count, -1, a.head_width).transpose(0, 1)[None]
                for name in ("query", "key", "value")
            )
            query, key = self.rotated(query, span), self.rotated(key, span)
            self.keys[i, :, :, span], self.values[i, :, :, span] = key, value
            mixed = functional.scaled_dot_product_attention(
                query, self.keys[i, :, :, :end], self.values[i, :, :, :end], is_causal=count > 1, enable_gqa=True
            )
            stream = stream + functional.linear(mixed[0].transpose(0, 1).reshape(count, -1), w["merge", i])
            x = functional.rms_norm(stream, (a.width,), w["norm_feed", i], a.epsilon)
            inner = functional.silu(functional.linear(x, w["gate", i])) * functional.linear(x, w["up", i])
            stream = stream + functional.linear(inner, w["down", i])
        self.length = end
        last = functional.rms_norm(stream[-1:], (a.width,), w["norm", None], a.epsilon)
        return functional.linear(last, w["embedding", None])


def decoding(share: DecoderShare, sequences: int) -> Work:
    """Return the work of TOKENS tokens for each of *sequences* after CONTEXT others."""
    caches = [share.cache(CONTEXT + TOKENS) for _ in range(sequences)]

    def work() -> None:
        for cache in caches:
            cache.length = CONTEXT
        for token in range(TOKENS):
            share.forward([SequencePart(cache, torch.tensor([token])) for cache in caches])

    return work


def main() -> None:
    use_one_thread()
    tensors = weights(SMOLLM2)

    def read(name: str, layer: int | None, first: int, last: int) -> Tensor:
        return tensors[name, layer][first:last]

    shares: dict[Precision, DecoderShare] = {
        precision: DecoderShare(SMOLLM2, read, 0, SMOLLM2.layers, precision) for precision in ("f32", "bf16", "int8")
    }
    share, loop = shares["f32"], Loop(SMOLLM2, tensors)

    def plain() -> None:
        loop.length = CONTEXT
        for token in range(TOKENS):
            loop.forward(torch.tensor([token]))

    def prompt() -> None:
        share.forward([SequencePart(share.cache(PROMPT), torch.arange(PROMPT))], last=[1])

    def plain_prompt() -> None:
        loop.length = 0
        loop.forward(torch.arange(PROMPT))

    found = compare(decoding(share, 1), plain)
    ours_ms, theirs_ms = found.a_s / TOKENS * 1e3, found.b_s / TOKENS * 1e3
    print(f"a token: {ours_ms:.1f} ms, the loop {theirs_ms:.1f} ms; speed {1 / found.ratio:.2f}")
    found = compare(prompt, plain_prompt)
    print(f"a prompt of {PROMPT}: {found.a_s:.2f} s, the loop {found.b_s:.2f} s; speed {1 / found.ratio:.2f}")
    for sequences in (2, 4, 8, 16):
        found = compare(decoding(share, sequences), decoding(share, 1))
        print(f"{sequences} sequences: {sequences / found.ratio:.2f} times the tokens/s of one")
    for precision in ("bf16", "int8"):
        for sequences in (1, 8):
            found = compare(decoding(shares[precision], sequences), decoding(share, sequences))
            print(f"{precision}, {sequences} at once: {1 / found.ratio:.2f} times the speed of f32")


if __name__ == "__main__":
    main()
