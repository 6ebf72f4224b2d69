"""Tiny models as GGUF files, with the names, settings and changes of llama.cpp's converter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, quants
from torch import Tensor

ARCHITECTURES = {
    "llama": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3_text": "gemma3", "phi3": "phi3", "smollm3": "smollm3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
    "gpt_oss": "gpt-oss",
}  # fmt: skip
LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv", "self_attn.sinks": "attn_sinks",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(
    path: Path, model: Any, quantisation: str = "F32", alter: Callable[[gguf.GGUFWriter], None] | None = None,
    without: tuple[str, ...] = (),
) -> Path:  # fmt: skip
    """Write *model*, with its matrices in *quantisation*; *model* itself then has the stored numbers."""
    kind = model.config.model_type
    writer = gguf.GGUFWriter(path, ARCHITECTURES[kind])
    _add_settings(writer, model.config)
    if alter is not None:
        alter(writer)
    for name, parameter in model.named_parameters():
        for key, view, there, back in _stored(name, parameter, model.config):
            values = there(view).contiguous().numpy()
            matrix = values.ndim > 1 and "ffn_gate_inp" not in key
            type_ = GGMLQuantizationType[quantisation if matrix else "F32"]
            raw = quants.quantize(values, type_)
            view.copy_(back(torch.from_numpy(quants.dequantize(raw, type_).reshape(values.shape).copy())))
            if key not in without:
                writer.add_tensor(key, raw, raw_dtype=type_)
    if (rope := model.config.rope_parameters).get("rope_type") == "llama3":
        plain = rope["rope_theta"] ** -(torch.arange(0, model.config.head_dim, 2) / model.config.head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_settings(writer: gguf.GGUFWriter, config: Any) -> None:
    kind = config.model_type
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if kind != "gemma3_text":
        writer.add_rope_dimension_count(config.head_dim)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind in ("gemma2", "gemma3_text", "phi3", "gpt_oss"):
        writer.add_sliding_window(config.sliding_window)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if (experts := getattr(config, "num_experts", None)) is not None:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        if kind in ("qwen2_moe", "qwen3_moe", "gpt_oss"):
            writer.add_expert_feed_forward_length(getattr(config, "moe_intermediate_size", config.intermediate_size))


def _stored(name: str, one: Tensor, config: Any) -> list[tuple[str, Tensor, Any, Any]]:
    """Return (key, view of a parameter, what turns the view into the stored tensor, its inverse)."""
    kind = config.model_type
    stem, _, suffix = name.rpartition(".")
    if suffix not in ("weight", "bias"):
        stem, suffix = name, "weight"
    if not stem.startswith("model.layers."):
        return [(f"{WHOLE[stem]}.{suffix}", one, *_norm(kind, stem))]
    _, _, layer, inner = stem.split(".", 3)
    if ".experts." in stem:
        return _experts(f"blk.{layer}", inner, one, kind)
    key = LAYER[inner]
    if kind in ("gemma2", "gemma3_text", "gpt_oss") and inner == "post_attention_layernorm":
        key = "post_attention_norm"
    if kind in ("llama", "mixtral", "smollm3") and key in ("attn_q", "attn_k"):
        width = config.head_dim
        paired = lambda w: w.view(-1, 2, width // 2, *w.shape[1:]).transpose(1, 2).reshape(w.shape)  # noqa: E731
        halves = lambda w: w.view(-1, width // 2, 2, *w.shape[1:]).transpose(1, 2).reshape(w.shape)  # noqa: E731
        return [(f"blk.{layer}.{key}.{suffix}", one, paired, halves)]
    view = one[0] if inner == "mlp.shared_expert_gate" else one
    return [(f"blk.{layer}.{key}.{suffix}", view, *_norm(kind, stem))]


def _same(values: Tensor) -> Tensor:
    return values


def _turned(values: Tensor) -> Tensor:
    return values.transpose(1, 2)


def _norm(kind: str, stem: str) -> tuple[Any, Any]:
    if kind.startswith("gemma") and stem.endswith("norm"):
        return (lambda values: values + 1), (lambda values: values - 1)
    return _same, _same


def _experts(block: str, inner: str, one: Tensor, kind: str) -> list[tuple[str, Tensor, Any, Any]]:
    suffix = "bias" if inner.endswith("_bias") else "weight"
    turns = (_turned, _turned) if kind == "gpt_oss" and suffix == "weight" else (_same, _same)
    if "down_proj" in inner:
        return [(f"{block}.ffn_down_exps.{suffix}", one, *turns)]
    halves = (one[..., 0::2], one[..., 1::2]) if kind == "gpt_oss" else one.chunk(2, dim=1)
    names = ("gate", "up")
    return [(f"{block}.ffn_{half}_exps.{suffix}", view, *turns) for half, view in zip(names, halves, strict=True)]


def write_random_blocks(path: Path, layers: int, width: int, heads: int, kv_heads: int, feed: int, words: int) -> Path:
    """Write a tied Llama of random weights in Q4_K, with Q6_K as llama.cpp's Q4_K_M has it."""
    generator = np.random.default_rng(3)
    writer = gguf.GGUFWriter(path, "llama")
    head = width // heads
    for add, value in (
        (writer.add_block_count, layers), (writer.add_embedding_length, width), (writer.add_head_count, heads),
        (writer.add_head_count_kv, kv_heads), (writer.add_feed_forward_length, feed), (writer.add_context_length, 4096),
    ):  # fmt: skip
        add(value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5e5)
    writer.add_rope_dimension_count(head)
    _add_blocks(writer, "token_embd.weight", (words, width), "Q6_K", generator)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for layer in range(layers):
        sizes = {
            "attn_q": (width, width), "attn_k": (kv_heads * head, width), "attn_v": (kv_heads * head, width),
            "attn_output": (width, width), "ffn_gate": (feed, width), "ffn_up": (feed, width),
            "ffn_down": (width, feed),
        }  # fmt: skip
        for name, shape in sizes.items():
            finer = name in ("attn_v", "ffn_down") and layer % 2 == 0
            _add_blocks(writer, f"blk.{layer}.{name}.weight", shape, "Q6_K" if finer else "Q4_K", generator)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_blocks(
    writer: gguf.GGUFWriter, name: str, shape: tuple[int, int], kind: str, generator: np.random.Generator
) -> None:
    """Add random blocks whose weights are about 0.02 in size, as those of a model before it is trained."""
    number = GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[number]
    raw = generator.integers(0, 256, (shape[0], shape[1] // block, size), dtype=np.uint8)
    scale = np.frombuffer(np.float16(6e-5).tobytes(), np.uint8)
    if kind == "Q4_K":
        raw[..., 0:2] = scale
        raw[..., 2:4] = np.frombuffer(np.float16(7.5 * 6e-5).tobytes(), np.uint8)
    else:
        raw[..., 192:208] = generator.integers(0, 16, raw[..., 192:208].shape, dtype=np.uint8)
        raw[..., 208:210] = scale
    writer.add_tensor(name, raw.reshape(shape[0], -1), raw_dtype=number)
