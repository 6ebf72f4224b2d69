"""A share of a decoder: consecutive layers of a transformers model, or some heads of all layers.

A share may also have the embedding or the head. It knows its sequences, but not which nodes have
the other shares, nor how activations travel between them. The split of a layer into shards is that
of Megatron-LM (Shoeybi et al. 2019, section 3): a shard computes partial sums of the outputs of the
two halves of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.lm.formats import Precision
from simcluster.lm.models.attention import SequenceSpan
from simcluster.lm.models.parameters import LayerSpan, ModelFiller, WeightSource
from simcluster.lm.models.sequence_cache import SequenceCache


@dataclass(frozen=True, slots=True)
class SequencePart:
    """The next tokens of one sequence.

    *inputs* are token ids (n) in the first share, and the previous share's stream (n, width) in
    others.
    """

    cache: SequenceCache
    inputs: Tensor


class ModelPass:
    """One pass of *parts* through a share: the spans of the parts, and data that all layers need."""

    def __init__(self, parts: Sequence[SequencePart], device: torch.device) -> None:
        self.counts = [len(part.inputs) for part in parts]
        ends = [0, *accumulate(self.counts)]
        self.spans = [SequenceSpan(part.cache, *span) for part, span in zip(parts, pairwise(ends), strict=True)]
        found = [torch.arange(one.start, one.start + one.last - one.first) for one in self.spans]
        self.positions = torch.cat(found)[None].to(device)
        self.inputs = torch.cat([part.inputs for part in parts])[None].to(device)
        self.angles: dict[str | None, Any] = {}

    def end(self) -> None:
        """Add the tokens of this pass to the lengths of the caches."""
        for span in self.spans:
            span.cache.length += span.last - span.first


class ModelShare:
    """The layers *span* of the model in *file*, with weights in *precision* on *device*.

    If the span has several shards, the share is one of them. The first share also embeds tokens.
    The last share computes logits, or its columns of them if it is a shard. Raise ValueError if
    *span* is empty or exceeds the model.
    """

    def __init__(self, file: WeightSource, span: LayerSpan, precision: Precision, device: torch.device) -> None:
        if not 0 <= span.first < span.last <= span.layers:
            found = f"[{span.first}, {span.last})"
            raise ValueError(f"layers: found {found}, expected a range within {span.layers} layers")
        self.first = span.first
        self.last = span.last
        self.embeds = span.embeds
        self.ends = span.ends
        self.device = device
        filler = ModelFiller(file, span, precision, device)
        self.config = filler.model.config
        self.nbytes = filler.nbytes
        self.dtype = filler.number_type
        self._parameters = filler.parameters()
        self._body = filler.model.model
        self._head = filler.model.lm_head
        self._layers = list(self._body.layers[span.first : span.last])

    def state(self) -> dict[str, Tensor]:
        """Return the weights by transformers' names, except those of quantised matrices."""
        return dict(self._parameters)

    def cache(self, capacity: int) -> SequenceCache:
        """Return an empty cache for *capacity* tokens of one sequence.

        Raise ValueError if *capacity* is not positive or exceeds the model's context.
        """
        most = self.config.max_position_embeddings
        if not 0 < capacity <= most:
            raise ValueError(f"capacity: found {capacity}, expected 1 to the context of {most} tokens")
        config = self.config
        shape = (self.last - self.first, config.num_key_value_heads, config.head_dim)
        return SequenceCache(self.first, shape, capacity, self.dtype, self.device)

    @torch.no_grad()
    def begin(self, parts: Sequence[SequencePart]) -> ModelPass:
        """Return a forward pass over *parts*.

        Raise ValueError if a part is empty or does not fit its cache, or if two parts share a
        cache.
        """
        if len({id(part.cache) for part in parts}) != len(parts):
            raise ValueError("parts: found two of one sequence, expected one")
        for part in parts:
            room = part.cache.capacity - part.cache.length
            if not 0 < len(part.inputs) <= room:
                raise ValueError(f"inputs: found {len(part.inputs)} tokens, expected 1 to the {room} that have room")
        return ModelPass(parts, self.device)

    @torch.no_grad()
    def forward(self, parts: Sequence[SequencePart], last: Sequence[int] | None = None) -> list[Tensor]:
        """Return each part's stream (n, width) for the next share, or its logits (n, vocabulary).

        *last* has the number of last tokens of each part that need logits; None is all. Afterwards,
        the caches have the tokens of *parts*. Raise ValueError as `begin` does, before any cache
        has changed.
        """
        if not parts:
            return []
        now = self.begin(parts)
        stream = self.embed(now) if self.embeds else now.inputs[0]
        for layer in range(self.first, self.last):
            stream = self.after_attention(layer, stream, self.attention(layer, now, stream))
            stream = self.after_feed(layer, stream, self.feed_forward(layer, stream))
        now.end()
        rows = list(torch.split(stream, now.counts))
        if not self.ends:
            return rows
        if last is not None:
            rows = [one[len(one) - count :] for one, count in zip(rows, last, strict=True)]
        return list(torch.split(self.logits(torch.cat(rows)), [len(one) for one in rows]))

    @torch.no_grad()
    def embed(self, now: ModelPass) -> Tensor:
        """Return the embeddings (n, width) of the tokens of *now*, which are the first stream."""
        stream: Tensor = self._body.embed_tokens(now.inputs.long())
        if hasattr(self._body, "position"):
            stream = stream + self._body.position(now.positions)
        return stream[0].to(self.dtype)

    @torch.no_grad()
    def attention(self, layer: int, now: ModelPass, stream: Tensor) -> Tensor:
        """Return the attention output of *layer* for *stream*, or a shard's partial sum of it."""
        module = self._layers[layer - self.first]
        inputs = module.input_layernorm(stream[None])
        angles = self._angles(module, layer, now, inputs)
        found = module.self_attn(hidden_states=inputs, position_embeddings=angles, attention_mask=None, spans=now.spans)
        mixed: Tensor = found[0][0]
        return mixed

    def _angles(self, module: nn.Module, layer: int, now: ModelPass, inputs: Tensor) -> Any:
        """Return the rotations of *layer*, which all layers of the same kind share."""
        rotary = self._body.rotary_emb
        if rotary is None:
            return None
        kind = self.config.layer_types[layer] if hasattr(rotary, "layer_types") else None
        if kind not in now.angles:
            kinds = () if kind is None else (kind,)
            now.angles[kind] = rotary(inputs, now.positions, *kinds)
        return now.angles[kind]

    @torch.no_grad()
    def after_attention(self, layer: int, stream: Tensor, total: Tensor) -> Tensor:
        """Return *stream* plus *total*, the attention output of *layer*.

        Gemma 2 and 3 normalise *total* before the sum.
        """
        module = self._layers[layer - self.first]
        if not hasattr(module, "pre_feedforward_layernorm"):
            return stream + total
        normed: Tensor = module.post_attention_layernorm(total)
        return stream + normed

    @torch.no_grad()
    def feed_forward(self, layer: int, stream: Tensor) -> Tensor:
        """Return the MLP output of *layer* for *stream*, or a shard's partial sum of it."""
        module = self._layers[layer - self.first]
        # Gemma 2 and 3 have norms before and after both halves of a layer.
        norm = getattr(module, "pre_feedforward_layernorm", module.post_attention_layernorm)
        found = module.mlp(norm(stream[None]))
        added: Tensor = (found[0] if isinstance(found, tuple) else found)[0]
        return added

    @torch.no_grad()
    def after_feed(self, layer: int, stream: Tensor, total: Tensor) -> Tensor:
        """Return *stream* plus *total*, the MLP output of *layer*.

        Gemma 2 and 3 normalise *total* before the sum.
        """
        module = self._layers[layer - self.first]
        if not hasattr(module, "post_feedforward_layernorm"):
            return stream + total
        normed: Tensor = module.post_feedforward_layernorm(total)
        return stream + normed

    @torch.no_grad()
    def logits(self, stream: Tensor) -> Tensor:
        """Return the logits of each row of *stream*, or a shard's columns of them, in f32."""
        found: Tensor = self._head(self._body.norm(stream)).float()
        cap = getattr(self.config, "final_logit_softcapping", None)
        return found if cap is None else torch.tanh(found / cap) * cap
