"""The settings of a GGUF file, by their names in a config.json."""

from __future__ import annotations

from typing import Any, Final

from simcluster.lm.files.error import ModelFileError, shown
from simcluster.lm.headers.header import ModelHeader

TYPES: Final = {
    "llama": "llama", "qwen2": "qwen2", "qwen2moe": "qwen2_moe", "qwen3": "qwen3", "qwen3moe": "qwen3_moe",
    "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3_text", "phi3": "phi3", "smollm3": "smollm3",
    "gpt-oss": "gpt_oss",
}  # fmt: skip
"""`general.architecture` of a GGUF file -> `model_type` of a config.json."""

ROPE_FREQUENCIES: Final = "rope_freqs.weight"
"""The tensor of divisors of the rotations' frequencies; rope_type llama3 has the same effect."""

GEMMA3_PATTERN: Final = 6

HARMLESS: Final = (
    "rope.scaling.finetuned", "rope.scaling.original_context_length", "rope.dimension_count", "attention.key_length",
    "attention.value_length",
)  # fmt: skip
"""Settings of rotations and attention that change nothing by themselves."""

GEMMA_LARGE_LAYERS: Final = {"gemma2": 46, "gemma3": 62}
"""Architecture -> layers of its 27B model, which scales scores by width / heads, not head size."""


def config_values(header: ModelHeader) -> dict[str, Any]:
    """Return the settings of the GGUF file with *header*, by their names in a config.json.

    Raise ModelFileError if a setting is malformed, or if the engine does not compute it.
    """
    shape = header.shape
    facts = header.facts
    values = header.facts.values
    kind = facts.prefix.removesuffix(".")
    found: dict[str, Any] = {
        "model_type": "mixtral" if kind == "llama" and shape.parts.routed else TYPES[kind],
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.width,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "intermediate_size": shape.ffn_width,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.context,
        "tie_word_embeddings": shape.tied,
        "rms_norm_eps": facts.positive("attention.layer_norm_rms_epsilon", default=None),
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
    }
    found |= _rotations(header, kind)
    found |= _window(header, kind)
    if shape.parts.routed:
        found |= _experts(header)
    if kind in ("gemma2", "gemma3"):
        found |= _gemma(header, kind)
    if not facts.flag("attention.causal", default=True):
        raise facts.wrong(f"{kind}.attention.causal", False, "true: a token sees only those before it")
    for key, value in values.items():
        name = key.removeprefix(facts.prefix)
        if key not in facts.read and name.startswith(("rope.", "attention.")) and name not in HARMLESS:
            raise facts.wrong(key, value, "no such setting: the engine does not compute it")
    return found


def _window(header: ModelHeader, kind: str) -> dict[str, Any]:
    """Return the settings of the window that a token sees, as llama.cpp interprets them."""
    facts = header.facts
    window = facts.count("attention.sliding_window", default=4096 if kind == "gemma2" else 0, least=0)
    key, pattern = facts.first("attention.sliding_window_pattern")
    if pattern not in (None, GEMMA3_PATTERN):
        raise facts.wrong(key, pattern, f"{GEMMA3_PATTERN}: a layer without a window after five with one")
    if kind in ("gemma2", "gemma3", "phi3", "gpt-oss"):
        return {"sliding_window": window or None}
    return {"use_sliding_window": False} if kind.startswith("qwen") or kind == "smollm3" else {}


def _rotations(header: ModelHeader, kind: str) -> dict[str, Any]:
    facts = header.facts
    # For Gemma 3, Ollama's converter writes two bases; llama.cpp's writes only that of the layers
    # without a window.
    theta = facts.positive("rope.freq_base", "rope.global.freq_base", default=None if kind == "gemma3" else 10_000.0)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    factor = facts.positive("rope.scaling.factor", "rope.scale_linear", default=1.0)
    key, scaling = facts.first("rope.scaling.type")
    scaling = scaling or ("linear" if factor != 1.0 else "none")
    if scaling not in ("none", "linear", "yarn"):
        raise facts.wrong(key, scaling, "none, linear or yarn")
    if scaling != "none":
        rope |= {"rope_type": scaling, "factor": factor}
    if scaling == "yarn":
        rope |= _yarn(header, kind)
    if kind == "gemma3":
        # Layers with a window rotate without scaling.
        local = facts.positive("rope.local.freq_base", "rope.freq_base_swa", default=10_000.0)
        alone = {"rope_type": "default", "rope_theta": local}
        return {"rope_parameters": {"full_attention": rope, "sliding_attention": alone}}
    found: dict[str, Any] = {"rope_parameters": rope}
    size = header.shape.head_size
    rotated = facts.count("rope.dimension_count", default=size)
    if rotated != size and kind != "phi3":
        raise facts.wrong(f"{facts.prefix}rope.dimension_count", rotated, f"{size}, a head's width")
    if rotated != size:
        rope["partial_rotary_factor"] = found["partial_rotary_factor"] = rotated / size
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if name in header.tensors:
            raise ModelFileError(facts.file, name, "rotations that change with the length", "none of this name")
    return found


def _yarn(header: ModelHeader, kind: str) -> dict[str, Any]:
    """Return the settings of YaRN (Peng et al. 2023)."""
    facts = header.facts
    found: dict[str, Any] = {
        "original_max_position_embeddings": facts.count("rope.scaling.original_context_length"),
        "beta_fast": facts.positive("rope.scaling.yarn_beta_fast", default=32.0),
        "beta_slow": facts.positive("rope.scaling.yarn_beta_slow", default=1.0),
    }
    return found | ({"truncate": False} if kind == "gpt-oss" else {})


def _experts(header: ModelHeader) -> dict[str, Any]:
    facts = header.facts
    parts = header.shape.parts
    each = facts.count("expert_feed_forward_length", default=header.shape.ffn_width)
    found: dict[str, Any] = {
        "num_experts_per_tok": parts.active, "num_local_experts": parts.experts, "num_experts": parts.experts,
        "moe_intermediate_size": each,
    }  # fmt: skip
    if facts.prefix == "qwen3moe.":
        found["norm_topk_prob"] = True
    if facts.prefix in ("qwen2moe.", "qwen3moe."):
        found["decoder_sparse_step"] = 1
    if facts.prefix == "gpt-oss.":
        found["intermediate_size"] = each
    if facts.prefix == "qwen2moe.":
        table = header.tensors.get("blk.0.ffn_gate_shexp.weight")
        if table is None:
            raise ModelFileError(facts.file, "blk.0.ffn_gate_shexp.weight", "no such tensor", "the shared expert")
        found["shared_expert_intermediate_size"] = table.shape[0]
    return found


def _gemma(header: ModelHeader, kind: str) -> dict[str, Any]:
    shape = header.shape
    facts = header.facts
    is_large = shape.layers == GEMMA_LARGE_LAYERS[kind]
    found: dict[str, Any] = {"query_pre_attn_scalar": shape.width // shape.heads if is_large else shape.head_size}
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        value = facts.first(key)[1]
        if value is not None:
            found[key] = facts.positive(key, default=None)
        elif kind == "gemma2":
            raise ModelFileError(facts.file, facts.prefix + key, shown(value), "a number")
    return found
