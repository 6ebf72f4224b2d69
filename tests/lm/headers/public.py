"""Public configurations: the keys that decide a model's size, and its published size in billions."""

from __future__ import annotations

from typing import Any


def llama(
    kind: str, layers: int, width: int, heads: int, kv_heads: int, ffn: int, words: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": words, "torch_dtype": "bfloat16",
    } | more  # fmt: skip


LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
SCALED = {"factor": 32.0, "high_freq_factor": 4.0, "rope_type": "llama3"}

PUBLIC: dict[str, tuple[dict[str, Any], float]] = {
    "mixtral 8x7b": (
        llama("mixtral", 32, 4096, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2), 46.7,
    ),
    "qwen3-30b-a3b": (
        llama("qwen3_moe", 48, 2048, 32, 4, 6144, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
              moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True), 30.5,
    ),
    "deepseek-v3": (
        llama("deepseek_v3", 61, 7168, 128, 128, 18432, 129280, moe_intermediate_size=2048, n_routed_experts=256,
              n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, moe_layer_freq=1, q_lora_rank=1536,
              num_nextn_predict_layers=1, n_group=8, topk_group=4, **LATENT,
              quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}), 671,
    ),
    "gpt-oss-20b": (
        llama("gpt_oss", 24, 2880, 64, 8, 2880, 201088, head_dim=64, num_local_experts=32, num_experts_per_tok=4,
              experts_per_token=4, attention_bias=True, sliding_window=128,
              quantization_config={"quant_method": "mxfp4"}), 20.9,
    ),
    "qwen1.5-moe-a2.7b": (
        llama("qwen2_moe", 24, 2048, 16, 16, 5632, 151936, num_experts=60, num_experts_per_tok=4,
              moe_intermediate_size=1408, shared_expert_intermediate_size=5632), 14.3,
    ),
    "phi-3.5-moe": (
        llama("phimoe", 32, 4096, 32, 8, 6400, 32064, num_local_experts=16, num_experts_per_tok=2,
              attention_bias=True, lm_head_bias=True), 41.9,
    ),
    "deepseek-v2-lite": (
        llama("deepseek_v2", 27, 2048, 16, 16, 10944, 102400, moe_intermediate_size=1408, n_routed_experts=64,
              n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, q_lora_rank=None, **LATENT), 15.7,
    ),
    "llama 3.2 1b": (
        llama("llama", 16, 2048, 32, 8, 8192, 128256, head_dim=64, tie_word_embeddings=True, rope_scaling=SCALED), 1.24,
    ),
    "llama 3.1 8b": (llama("llama", 32, 4096, 32, 8, 14336, 128256, rope_scaling=SCALED), 8.03),
    "llama 3.1 70b": (llama("llama", 80, 8192, 64, 8, 28672, 128256, rope_scaling=SCALED), 70.6),
    "qwen2.5-7b": (llama("qwen2", 28, 3584, 28, 4, 18944, 152064, use_sliding_window=False), 7.62),
    "qwen2.5-0.5b": (llama("qwen2", 24, 896, 14, 2, 4864, 151936, tie_word_embeddings=True), 0.494),
    "qwen3-4b": (llama("qwen3", 36, 2560, 32, 8, 9728, 151936, head_dim=128, tie_word_embeddings=True), 4.02),
    "mistral 7b": (llama("mistral", 32, 4096, 32, 8, 14336, 32000, sliding_window=4096), 7.24),
    "gemma 2 2b": (llama("gemma2", 26, 2304, 8, 4, 9216, 256000, head_dim=256), 2.61),
    "gemma 3 1b": (llama("gemma3_text", 26, 1152, 4, 1, 6912, 262144, head_dim=256), 1.0),
    "phi-2": (llama("phi", 32, 2560, 32, 32, 10240, 51200), 2.78),
    "phi-3-mini": (llama("phi3", 32, 3072, 32, 32, 8192, 32064), 3.82),
    "smollm2 1.7b": (llama("llama", 24, 2048, 32, 32, 8192, 49152, tie_word_embeddings=True), 1.71),
    "smollm3": (llama("smollm3", 36, 2048, 16, 4, 11008, 128256), 3.08),
    "gpt-2": ({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "n_ctx": 1024,
               "vocab_size": 50257, "torch_dtype": "float32"}, 0.124),
    "olmoe": (llama("olmoe", 16, 2048, 16, 16, 1024, 50304, num_experts=64, num_experts_per_tok=8), 6.92),
    "glm-4.5-air": (
        llama("glm4_moe", 46, 4096, 96, 8, 10944, 151552, head_dim=128, moe_intermediate_size=1408, attention_bias=True,
              n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1,
              num_nextn_predict_layers=1, use_qk_norm=False), 106.9,
    ),
    "llama 4 scout, its text": (
        llama("llama4_text", 48, 5120, 40, 8, 8192, 202048, head_dim=128, intermediate_size_mlp=16384,
              interleave_moe_layer_step=1, num_local_experts=16, num_experts_per_tok=1, use_qk_norm=True), 107.8,
    ),
}  # fmt: skip
