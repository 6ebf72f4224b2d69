"""Llama models of random weights with a tokenizer of bytes, as folders of Hugging Face's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

WORDS = 32_000


class ModelSize(NamedTuple):
    """Layers, widths and heads of a model."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed: int


ONE_BILLION = ModelSize(16, 2048, 32, 8, 8192)
"""1.10 billion weights: 16 x 60.8 million in the layers, and two tables of 65.5 million."""

SMALL = ModelSize(4, 256, 4, 2, 512)
"""18.8 million weights."""


def make(folder: Path, size: ModelSize, device: str, *, context: int = 2048) -> int:
    """Write a model of *size* in bfloat16 to *folder*, drawn on *device*; return its bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=size.layers, hidden_size=size.width, num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads, intermediate_size=size.feed, vocab_size=WORDS,
        max_position_embeddings=context, initializer_range=0.05, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = LlamaForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)
    write_tokenizer(folder)
    return sum(2 * weight.numel() for weight in model.parameters())


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer to *folder* that makes a token of each byte; other tokens are only shown."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, *(f"<{number}>" for number in range(len(letters), WORDS))]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
