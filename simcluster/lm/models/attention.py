"""Attention of several sequences over their caches, as a function that transformers calls.

Each sequence attends separately: the tokens of all sequences pass through a layer as one row of
tokens, and only attention separates them. A sequence's keys and values stay in its cache, so
nothing is padded and nothing is copied.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from simcluster.lm.models.sequence_cache import SequenceCache

NAME: Final = "simcluster"
"""The name under which transformers knows `attend`."""

QUERIES: Final = 256
"""Limit on the queries per product, which bounds the memory of the scores."""


class SequenceSpan:
    """The tokens [*first*, *last*) of a pass, which are the next ones of the sequence in *cache*."""

    def __init__(self, cache: SequenceCache, first: int, last: int) -> None:
        self.cache = cache
        self.first = first
        self.last = last
        self.start = cache.length
        self._masks: dict[tuple[int, int, int | None], Tensor] = {}

    def attended(self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None, **how: Any) -> Tensor:
        """Write *key* and *value* into the cache; return the attention of *query*.

        *query* is (heads, tokens, width of a head); *key* and *value* are (KV heads, tokens, width).
        A token sees itself and the *window* - 1 tokens before it, or all if *window* is None.
        """
        keys, values = self.cache.write(layer, self.start, key, value)
        rows = []
        for first in range(0, query.shape[1], QUERIES):
            last = min(query.shape[1], first + QUERIES)
            begin = 0 if window is None else max(0, self.start + first + 1 - window)
            end = self.start + last
            mask = self._mask(first, last, begin, window)
            part = query[:, first:last]
            rows.append(_product(part, keys[:, begin:end], values[:, begin:end], mask, **how))
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)

    def _mask(self, first: int, last: int, begin: int, window: int | None) -> Tensor | None:
        """Return the mask of keys from *begin* on that each query sees, or None if it sees all."""
        if last - first == 1:
            return None
        name = (first, last, window)
        if name not in self._masks:
            device = self.cache.keys.device
            queries = torch.arange(self.start + first, self.start + last, device=device)[:, None]
            keys = torch.arange(begin, self.start + last, device=device)
            seen = keys <= queries
            self._masks[name] = seen if window is None else seen & (keys > queries - window)
        return self._masks[name]


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    scaling: float,
    spans: list[SequenceSpan],
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return the attention (1, tokens, heads, width) of all *spans*, as transformers expects it.

    *softcap* limits the scores (Gemma 2), and *s_aux* has a score per head that takes part in the
    softmax without a value (gpt-oss).
    """
    if sliding_window is None:
        # Qwen2-MoE passes its window only to the mask, so read it from the layer. Only layers with
        # a window have the attribute.
        sliding_window = getattr(module, "sliding_window", None) or None
    rows = []
    for span in spans:
        own = slice(span.first, span.last)
        found = span.attended(
            module.layer_idx, query[0, :, own], key[0, :, own], value[0, :, own], sliding_window,
            scaling=scaling, softcap=softcap, sinks=s_aux,
        )  # fmt: skip
        rows.append(found)
    mixed = rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)
    return mixed.transpose(0, 1)[None], None


def _product(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    *,
    scaling: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    if softcap is None and sinks is None:
        grouped = len(query) != len(keys)
        found: Tensor = functional.scaled_dot_product_attention(
            query[None], keys[None], values[None], attn_mask=mask, scale=scaling, enable_gqa=grouped
        )
        return found[0]
    # The heads of a group are rows of one product, so that no key is copied for each of them.
    heads, count, width = query.shape
    rows = query.reshape(len(keys), -1, width)
    scores = torch.matmul(rows, keys.transpose(1, 2)).view(heads, count, -1) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is not None:
        column = sinks.view(-1, 1, 1).expand(-1, count, 1)
        scores = torch.cat([scores, column.to(scores.dtype)], dim=2)
    shares = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    if sinks is not None:
        shares = shares[..., :-1]
    return torch.matmul(shares.reshape(len(keys), -1, shares.shape[2]), values).view(heads, count, width)
