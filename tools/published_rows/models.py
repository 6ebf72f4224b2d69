"""The shapes of the models of published rows, read from the keys of their config.json."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from simcluster.lm.headers.config import shape_of_config
from simcluster.lm.headers.header import ModelFacts
from simcluster.lm.plan.shape import ModelShape

COLUMNS: Final = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size",
)  # fmt: skip

_QWEN3: Final = {
    "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": True,
}  # fmt: skip
_GPT_OSS: Final = {
    "head_dim": 64, "num_experts_per_tok": 4, "experts_per_token": 4, "attention_bias": True, "sliding_window": 128,
}  # fmt: skip
_DEEPSEEK: Final = {
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 8, "topk_group": 4,
}  # fmt: skip

MODELS: Final[dict[str, tuple[str, tuple[int, ...], dict[str, Any]]]] = {
    "tinyllama-1.1b": ("llama", (22, 2048, 32, 4, 5632, 32000), {}),
    "llama-2-7b": ("llama", (32, 4096, 32, 32, 11008, 32000), {}),
    "llama-2-13b": ("llama", (40, 5120, 40, 40, 13824, 32000), {}),
    "llama-2-70b": ("llama", (80, 8192, 64, 8, 28672, 32000), {}),
    "llama-3-8b": ("llama", (32, 4096, 32, 8, 14336, 128256), {}),
    "llama-3.1-70b": ("llama", (80, 8192, 64, 8, 28672, 128256), {}),
    "llama-3.1-405b": ("llama", (126, 16384, 128, 8, 53248, 128256), {}),
    "llama-3.2-3b": ("llama", (28, 3072, 24, 8, 8192, 128256), {"head_dim": 128, "tie_word_embeddings": True}),
    "qwen2.5-7b": ("qwen2", (28, 3584, 28, 4, 18944, 152064), {}),
    "qwen2.5-14b": ("qwen2", (48, 5120, 40, 8, 13824, 152064), {}),
    "qwen2.5-32b": ("qwen2", (64, 5120, 40, 8, 27648, 152064), {}),
    "qwen3-30b-a3b": ("qwen3_moe", (48, 2048, 32, 4, 6144, 151936), _QWEN3 | {"moe_intermediate_size": 768}),
    "qwen3-235b-a22b": ("qwen3_moe", (94, 4096, 64, 4, 12288, 151936), _QWEN3 | {"moe_intermediate_size": 1536}),
    "gpt-oss-20b": ("gpt_oss", (24, 2880, 64, 8, 2880, 201088), _GPT_OSS | {"num_local_experts": 32}),
    "gpt-oss-120b": ("gpt_oss", (36, 2880, 64, 8, 2880, 201088), _GPT_OSS | {"num_local_experts": 128}),
    "deepseek-r1": ("deepseek_v3", (61, 7168, 128, 128, 18432, 129280), _DEEPSEEK),
}
"""Name -> (`model_type`, the values of COLUMNS, other keys)."""


@cache
def shape_of_row(name: str) -> ModelShape:
    """Return the shape of the model *name* of MODELS."""
    kind, sizes, others = MODELS[name]
    values = {"model_type": kind, **dict(zip(COLUMNS, sizes, strict=True)), **others}
    return shape_of_config(ModelFacts(Path(name), values), name)
