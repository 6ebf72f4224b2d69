"""The families of decoders with known weights. Models of other families are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

ALL: Final = ("qkv", "output", "mlp", "norm")


@dataclass(frozen=True)
class ModelFamily:
    """Differences between the decoders of a `model_type` and Llama; a config may override them.

    *norms* is the number of norms of the model's width in a layer. With *qk_norm*, queries and keys
    have norms as well, of the size of one head or of all heads. *biases* are the matrices with a
    bias. With *router_bias*, the router has an additional number per expert. *learned* is the
    number of learned positions in addition to the context, or None if positions are not learned.
    *dense* is the number of first layers without experts, *shared* the number of experts that every
    token uses. With *sinks*, attention has an additional number per head.
    """

    tied: bool = False
    gated: bool = True
    norms: int = 2
    biases: tuple[str, ...] = ()
    qk_norm: Literal["", "head", "heads"] = ""
    experts: bool = False
    router_bias: bool = False
    dense: int = 0
    shared: int = 0
    head_size: int | None = None
    kv_heads: int | None = None
    last_norm: int = 1
    learned: int | None = None
    sinks: bool = False


_QWEN = ModelFamily(biases=("qkv",))
_LATENT = ModelFamily(experts=True, router_bias=True, dense=3)

FAMILIES: Final[dict[str, ModelFamily]] = {
    **dict.fromkeys(("llama", "mistral", "ministral", "ministral3", "phi3", "granite"), ModelFamily()),
    **dict.fromkeys(("mixtral", "granitemoe", "granitemoeshared"), ModelFamily(experts=True)),
    "arcee": ModelFamily(gated=False),
    "smollm3": ModelFamily(tied=True),
    "ernie4_5": ModelFamily(tied=True),
    "ernie4_5_moe": ModelFamily(tied=True, experts=True, router_bias=True, dense=1),
    "qwen2": _QWEN,
    "glm": ModelFamily(biases=("qkv",), head_size=128, kv_heads=2),
    "glm4": ModelFamily(biases=("qkv",), norms=4, head_size=128, kv_heads=2),
    "glm4_moe": ModelFamily(experts=True, router_bias=True, dense=1, head_size=128),
    "seed_oss": ModelFamily(biases=("qkv",), head_size=128),
    "qwen2_moe": ModelFamily(biases=("qkv",), experts=True),
    "qwen3": ModelFamily(qk_norm="head", head_size=128),
    "qwen3_moe": ModelFamily(qk_norm="head", experts=True),
    "dots1": ModelFamily(qk_norm="head", experts=True, router_bias=True),
    "hunyuan_v1_dense": ModelFamily(qk_norm="head"),
    "exaone4": ModelFamily(qk_norm="head"),
    "minimax_m2": ModelFamily(qk_norm="heads", experts=True, router_bias=True, head_size=128),
    "gemma": ModelFamily(tied=True, head_size=256),
    "gemma2": ModelFamily(tied=True, norms=4, head_size=256),
    "gemma3_text": ModelFamily(tied=True, norms=4, qk_norm="head", head_size=256),
    "phi": ModelFamily(gated=False, norms=1, biases=(*ALL, "head")),
    "phimoe": ModelFamily(experts=True, biases=("norm",)),
    "gpt2": ModelFamily(tied=True, gated=False, biases=ALL, learned=0),
    "gpt_bigcode": ModelFamily(tied=True, gated=False, biases=ALL, learned=0, kv_heads=1),
    "gpt_neox": ModelFamily(gated=False, biases=ALL),
    "gptj": ModelFamily(gated=False, norms=1, biases=("mlp", "norm", "head")),
    "starcoder2": ModelFamily(tied=True, gated=False, biases=ALL),
    "nemotron": ModelFamily(gated=False, biases=("norm",)),
    "stablelm": ModelFamily(biases=("norm",)),
    "olmo": ModelFamily(norms=0, last_norm=0),
    **dict.fromkeys(("olmo2", "olmo3"), ModelFamily(qk_norm="heads")),
    "olmoe": ModelFamily(qk_norm="heads", experts=True),
    **dict.fromkeys(("cohere", "cohere2"), ModelFamily(tied=True, norms=1)),
    **dict.fromkeys(("deepseek_v3", "kimi_k2"), _LATENT),
    "deepseek_v2": ModelFamily(experts=True),
    "gpt_oss": ModelFamily(experts=True, biases=("qkv", "output", "experts"), head_size=64, sinks=True),
    "llama4_text": ModelFamily(experts=True, shared=1, head_size=128),
}
"""`model_type` in a config.json -> its family."""

ARCHITECTURES: Final = (
    "llama", "llama4", "mistral3", "qwen", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "gemma2",
    "gemma3", "phi2", "phi3", "phimoe", "gpt2", "gptneox", "gptj", "starcoder", "starcoder2", "stablelm",
    "falcon", "bloom", "mpt", "olmo", "olmo2", "olmoe", "command-r", "cohere2", "granite", "granitemoe",
    "smollm3", "deepseek", "deepseek2", "gpt-oss", "chatglm", "glm4", "glm4moe", "exaone", "exaone4",
    "internlm2", "baichuan", "nemotron", "orion", "minicpm", "dots1", "ernie4_5", "ernie4_5-moe",
    "hunyuan-dense", "hunyuan-moe", "seed_oss", "arcee", "minimax-m2", "bailingmoe", "bailingmoe2", "xverse",
)  # fmt: skip
"""Known values of `general.architecture` in GGUF files, which list the shapes of all tensors."""
