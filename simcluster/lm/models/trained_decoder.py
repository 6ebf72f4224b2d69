"""The modules of a trained GPT, with the names and arguments of transformers' models.

`simcluster.workloads.models.transformer` trains it. Unlike that code, this one attends over a
cache.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from simcluster.lm.models.attention import SequenceSpan, attend
from simcluster.workloads.models.transformer import FeedForward


class TrainedDecoder(nn.Module):
    """A GPT of the sizes in *config*, which has the names of transformers' settings."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.model = TrainedBody(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)


class TrainedBody(nn.Module):
    """The embeddings, the layers and the norm. Positions are learned, so nothing is rotated."""

    rotary_emb = None

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.layers = nn.ModuleList(TrainedLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size, bias=False)


class TrainedLayer(nn.Module):
    """A layer: attention and a feed-forward network, each after a norm."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size, bias=False)
        self.self_attn = TrainedAttention(config, layer)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size, bias=False)
        inner = config.intermediate_size
        up = nn.Linear(config.hidden_size, (1 + config.is_gated) * inner, bias=False)
        self.mlp = FeedForward(up, nn.Linear(inner, config.hidden_size, bias=False), config.is_gated)


class TrainedAttention(nn.Module):
    """Attention, with one matrix for all queries, keys and values."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        self.layer_idx = layer
        self._width = config.head_dim
        self._counts = [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads]
        self.qkv_proj = nn.Linear(config.hidden_size, sum(self._counts) * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, hidden_states: Tensor, spans: list[SequenceSpan], **others: Any) -> tuple[Tensor, None]:
        tokens = hidden_states.shape[1]
        heads = self.qkv_proj(hidden_states).view(1, tokens, -1, self._width).transpose(1, 2)
        query, key, value = heads.split(self._counts, dim=1)
        mixed, _weights = attend(self, query, key, value, None, scaling=self._width**-0.5, spans=spans)
        return self.o_proj(mixed.reshape(1, tokens, -1)), None
