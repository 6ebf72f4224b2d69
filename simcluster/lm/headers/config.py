"""The shape of a model by its config.json, as Hugging Face has it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from simcluster.errors import nearest
from simcluster.lm.headers.families import FAMILIES, ModelFamily
from simcluster.lm.headers.header import MOST_CONTEXT, MOST_LAYERS, ModelFacts, printable
from simcluster.lm.headers.quantised import densities
from simcluster.lm.plan.shape import ModelShape, WeightCounts

BIASES: Final = {
    "attention_bias": ("qkv", "output"), "use_qkv_bias": ("qkv",), "qkv_bias": ("qkv",),
    "attention_out_bias": ("output",),
    "mlp_bias": ("mlp",), "use_bias": ("qkv", "output", "mlp"), "enable_bias": ("qkv", "output", "mlp"),
    "lm_head_bias": ("head",),
}  # fmt: skip
"""Keys of a config -> the biases that they switch."""

OUTPUT_WITHOUT_BIAS: Final = ("glm", "glm4", "glm4_moe")

SIZED: Final = re.compile(
    r"expert|moe|lora|rank|bias|size|dim|num_|^n_|layer|head|config|norm|proj|embed|ssm|conv|mtp|audio|vision|state|inner"
)
"""Keys with these parts may change a model's size."""

NO_SIZE: Final = re.compile(
    r"original_max_position_embeddings|num_(labels|beams|beam_groups|return_sequences|nextn_predict_layers)|chunk_size_feed_forward|max_window_layers"
    r"|_?sliding_window.*|attention_chunk_size|no_rope_layer.*|moe_layers|moe_layer_end_index|norm_topk_prob|n_group"
    r"|.*_token_id|quantization(_config)?|topk_group|qk_head_dim|rotary_dim|summary_.*|torch_dtype|pretraining_tp|do_layer_norm_before"
    r"|layer_norm_elementwise_affine|num_ln_in_parallel_attn|scale_attn_by_inverse_layer_idx|use_bidirectional_attention"
    r"|(rms|layer)?_?norm_eps(ilon)?|router_jitter_noise|num_local_experts_per.*|moe_router.*|moe_(dropout|use_).*"
)
ATTENTION: Final = ("full_attention", "sliding_attention", "chunked_attention")


def shape_of_config(facts: ModelFacts, name: str) -> ModelShape:
    """Return the shape of the config.json in *facts*. Raise ModelFileError for what is unknown, by its key."""
    kind = str(facts.first("model_type")[1])
    if "vision_config" in facts.values or kind not in FAMILIES:
        if "text_config" in facts.values:
            expected = "a model of text alone: save its text_config as a config.json"
            raise facts.wrong("model_type", kind, expected)
        raise facts.wrong("model_type", kind, f"a decoder with known weights: {nearest(kind, FAMILIES)}")
    family = FAMILIES[kind]
    layers = facts.count("num_hidden_layers", "n_layer", most=MOST_LAYERS)
    width = facts.count("hidden_size", "n_embd")
    heads = facts.count("num_attention_heads", "n_head")
    kv_heads = facts.count("num_key_value_heads", default=family.kv_heads or heads)
    head_size = facts.count("head_dim", default=family.head_size or max(1, width // heads))
    feed = facts.count("intermediate_size", "n_inner", default=None if family.gated else 4 * width)
    context = facts.count("max_position_embeddings", "n_positions", "n_ctx", default=MOST_CONTEXT, most=MOST_CONTEXT)
    shape = ModelShape(
        printable(name), layers, width, heads, kv_heads, head_size, feed, facts.count("vocab_size"),
        facts.flag("tie_word_embeddings", default=family.tied), 4.0, gated=family.gated,
        context=None if context == MOST_CONTEXT else context,
    )  # fmt: skip
    if heads % kv_heads:
        raise facts.wrong("num_key_value_heads", kv_heads, f"a divisor of {heads} heads")
    shape = _counted(facts, family, shape, kind)
    _check_all_read(facts)
    return replace(shape, **densities(facts))


def _counted(facts: ModelFacts, family: ModelFamily, shape: ModelShape, kind: str) -> ModelShape:
    """Return *shape* with the weights that *facts* say."""
    s, biases = shape, set(family.biases)
    for key, switched in BIASES.items():
        if facts.first(key)[1] is not None:
            given = [one for one in switched if one != "output" or kind not in OUTPUT_WITHOUT_BIAS]
            biases = biases.union(given) if facts.flag(key) else biases.difference(given)
    norm = s.width * (1 + ("norm" in biases))
    heads, kv = s.heads * s.head_size, s.kv_heads * s.head_size
    others = family.norms * norm + ("qkv" in biases) * (heads + 2 * kv) + ("output" in biases) * s.width
    shared_norms = facts.flag("use_parallel_residual") and kind == "stablelm"
    others -= shared_norms * norm
    qk_norm = family.qk_norm
    if facts.flag("use_qk_norm", "qk_layernorm", default=bool(qk_norm)) and not qk_norm and kind != "llama4_text":
        qk_norm = "head" if kind == "glm4_moe" else "heads"
    others += {"": 0, "head": 2 * s.head_size, "heads": heads + kv}[qk_norm]
    others += s.heads * family.sinks
    attention = 2 * s.width * (heads + kv)
    if facts.first("kv_lora_rank")[1] is not None:
        shape, attention, others = _latent(facts, s, others)
    feed_each = (2 + s.gated) * s.width + ("mlp" in biases) * (1 + s.gated)
    end_bias = "mlp" in biases and s.width
    counts = WeightCounts(
        s.layers * attention, s.layers * (feed_each * s.ffn_width + end_bias), s.layers * others,
        first=(s.width * ((s.context or 0) + family.learned) if family.learned is not None else 0),
        last=norm * family.last_norm + ("head" in biases) * s.vocabulary,
    )  # fmt: skip
    if family.experts:
        counts = _with_experts(facts, family, shape, counts, biases)
    return replace(shape, counts=counts)


def _latent(facts: ModelFacts, s: ModelShape, others: int) -> tuple[ModelShape, int, int]:
    """Return the shape, the matrices and the other weights of a layer with latent attention, as DeepSeek's."""
    rank, rotated = facts.count("kv_lora_rank"), facts.count("qk_rope_head_dim", default=64)
    plain, value = facts.count("qk_nope_head_dim", default=128), facts.count("v_head_dim", default=128)
    query_rank = facts.count("q_lora_rank", default=0, least=0)
    query = query_rank * (s.width + s.heads * (plain + rotated)) or s.width * s.heads * (plain + rotated)
    attention = query + s.width * (rank + rotated) + rank * s.heads * (plain + value) + s.heads * value * s.width
    # All heads share the latent vector that is cached, and a pair of tokens costs what half of both sizes would.
    shape = replace(s, kv_heads=1, head_size=(plain + rotated + value) // 2, cached=rank + rotated)
    return shape, attention, others + rank + query_rank


def _with_experts(
    facts: ModelFacts, family: ModelFamily, s: ModelShape, counts: WeightCounts, biases: set[str]
) -> WeightCounts:
    """Return *counts* with experts in the layers that have them, and the MLP of *counts* in the others."""
    experts = facts.count("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    active = facts.count("num_experts_per_tok", "experts_per_token", "moe_k", most=experts)
    each = facts.count("moe_intermediate_size", default=s.ffn_width)
    dense_width = facts.count("intermediate_size_mlp", default=s.ffn_width)
    shared = facts.count("shared_expert_intermediate_size", "shared_intermediate_size", default=0, least=0)
    gate = s.width if shared and "shared_expert_intermediate_size" in facts.values else 0
    shared += each * facts.count("n_shared_experts", "moe_num_shared_experts", default=family.shared, least=0)
    first = facts.count("first_k_dense_replace", "moe_layer_start_index", default=family.dense, least=0)
    step = facts.count(
        "decoder_sparse_step", "moe_layer_freq", "moe_layer_interval", "interleave_moe_layer_step", default=1
    )
    key, dense = facts.first("mlp_only_layers")
    if dense is not None and not isinstance(dense, list):
        raise facts.wrong(key, dense, "a list of layers")
    sparse = sum(i >= first and (i + 1) % step == 0 and i not in (dense or ()) for i in range(s.layers))
    one = 3 * s.width * each + ("experts" in biases) * (2 * each + s.width)
    router = experts * (s.width + family.router_bias + ("experts" in biases))
    feed = (s.layers - sparse) * 3 * s.width * dense_width + sparse * (3 * s.width * shared + gate + router)
    return replace(counts, feed=feed, routed=sparse * experts * one, experts=experts, active=active)


def _check_all_read(facts: ModelFacts) -> None:
    """Raise ModelFileError for a key that may change the size or the arithmetic, and that nothing here has read."""
    key, kinds = facts.first("layer_types")
    if kinds is not None and not (isinstance(kinds, list) and set(map(str, kinds)) <= set(ATTENTION)):
        raise facts.wrong(key, kinds, f"layers of {', '.join(ATTENTION)}")
    for key, value in facts.values.items():
        matters = value is True or (type(value) is int and value > 0) or (isinstance(value, (dict, list)) and value)
        if matters and key not in facts.read and SIZED.search(key) and not NO_SIZE.fullmatch(key):
            raise facts.wrong(key, value, f"no such key in a model of type {facts.values['model_type']}")
