"""The shape of a model, read from its config.json in Hugging Face's format."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from simcluster.lm.headers.families import FAMILIES, ModelFamily
from simcluster.lm.headers.header import MOST_CONTEXT, MOST_EXPERTS, MOST_LAYERS, ModelFacts, printable
from simcluster.lm.plan.shape import ModelShape, WeightCounts
from simcluster.spelling import nearest

BIASES: Final = {
    "attention_bias": ("qkv", "output"), "use_qkv_bias": ("qkv",), "qkv_bias": ("qkv",),
    "attention_out_bias": ("output",),
    "mlp_bias": ("mlp",), "use_bias": ("qkv", "output", "mlp"), "enable_bias": ("qkv", "output", "mlp"),
    "lm_head_bias": ("head",),
}  # fmt: skip
"""Key of a config -> the biases that it switches on."""

OUTPUT_WITHOUT_BIAS: Final = ("glm", "glm4", "glm4_moe")
"""Model types for which these keys do not switch on a bias at the attention's output."""

SIZED: Final = re.compile(
    r"expert|moe|lora|rank|bias|size|dim|num_|^n_|layer|head|config|norm|proj|embed|ssm|conv|mtp|audio|vision|state|inner"
)
"""Unread keys that match this may change a model's size."""

NO_SIZE: Final = re.compile(
    r"original_max_position_embeddings|num_(labels|beams|beam_groups|return_sequences|nextn_predict_layers)|chunk_size_feed_forward|max_window_layers"
    r"|_?sliding_window.*|attention_chunk_size|no_rope_layer.*|moe_layers|moe_layer_end_index|norm_topk_prob|n_group"
    r"|.*_token_id|quantization(_config)?|topk_group|qk_head_dim|rotary_dim|summary_.*|torch_dtype|pretraining_tp|do_layer_norm_before"
    r"|layer_norm_elementwise_affine|num_ln_in_parallel_attn|scale_attn_by_inverse_layer_idx|use_bidirectional_attention"
    r"|(rms|layer)?_?norm_eps(ilon)?|router_jitter_noise|num_local_experts_per.*|moe_router.*|moe_(dropout|use_).*"
)
"""Keys that match SIZED but change neither the model's size nor the arithmetic that is counted."""

ATTENTION: Final = ("full_attention", "sliding_attention", "chunked_attention")


def shape_of_config(facts: ModelFacts, name: str) -> ModelShape:
    """Return the shape of the model with the config.json *facts*, called *name*.

    Raise ModelFileError if the model is of an unknown type, or if a key may change its size in an
    unknown way.
    """
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
    return shape


def _counted(facts: ModelFacts, family: ModelFamily, shape: ModelShape, kind: str) -> ModelShape:
    """Return *shape* with the numbers of weights that follow from *facts* and *family*."""
    s = shape
    biases = set(family.biases)
    for key, places in BIASES.items():
        if facts.first(key)[1] is not None:
            switched = [one for one in places if one != "output" or kind not in OUTPUT_WITHOUT_BIAS]
            biases = biases.union(switched) if facts.flag(key) else biases.difference(switched)
    norm = s.width * (1 + ("norm" in biases))
    heads = s.heads * s.head_size
    kv = s.kv_heads * s.head_size
    others = family.norms * norm + ("qkv" in biases) * (heads + 2 * kv) + ("output" in biases) * s.width
    # In a parallel block of StableLM, attention and MLP share one norm.
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
    """Return (shape with DeepSeek's latent attention, its attention weights, its other weights).

    Both numbers are per layer. The latter is *others* plus the norms of the latent vectors.
    """
    rank = facts.count("kv_lora_rank")
    rotated = facts.count("qk_rope_head_dim", default=64)
    plain = facts.count("qk_nope_head_dim", default=128)
    value = facts.count("v_head_dim", default=128)
    query_rank = facts.count("q_lora_rank", default=0, least=0)
    query = query_rank * (s.width + s.heads * (plain + rotated)) or s.width * s.heads * (plain + rotated)
    attention = query + s.width * (rank + rotated) + rank * s.heads * (plain + value) + s.heads * value * s.width
    # All heads share the latent vector in the cache. The cost per pair of tokens is that of heads
    # whose size is the mean of the query's and the value's size.
    shape = replace(s, kv_heads=1, head_size=(plain + rotated + value) // 2, cached=rank + rotated)
    return shape, attention, others + rank + query_rank


def _with_experts(
    facts: ModelFacts, family: ModelFamily, s: ModelShape, counts: WeightCounts, biases: set[str]
) -> WeightCounts:
    """Return *counts* with the feed-forward weights of a mixture of experts.

    Layers with experts have routers, shared experts and routed experts; the other layers have a
    dense feed-forward network.
    """
    experts = facts.count("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", most=MOST_EXPERTS)
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
    without = {layer for layer in dense or () if type(layer) is int}
    sparse = sum(i >= first and (i + 1) % step == 0 and i not in without for i in range(s.layers))
    one = 3 * s.width * each + ("experts" in biases) * (2 * each + s.width)
    router = experts * (s.width + family.router_bias + ("experts" in biases))
    feed = (s.layers - sparse) * 3 * s.width * dense_width + sparse * (3 * s.width * shared + gate + router)
    return replace(counts, feed=feed, routed=sparse * experts * one, experts=experts, active=active)


def _check_all_read(facts: ModelFacts) -> None:
    """Raise ModelFileError for an unread key that may change the size or the arithmetic."""
    key, kinds = facts.first("layer_types")
    if kinds is not None and not (isinstance(kinds, list) and set(map(str, kinds)) <= set(ATTENTION)):
        raise facts.wrong(key, kinds, f"layers of {', '.join(ATTENTION)}")
    for key, value in facts.values.items():
        matters = value is True or (type(value) is int and value > 0) or (isinstance(value, (dict, list)) and value)
        if matters and key not in facts.read and SIZED.search(key) and not NO_SIZE.fullmatch(key):
            raise facts.wrong(key, value, f"no such key in a model of type {facts.values['model_type']}")
