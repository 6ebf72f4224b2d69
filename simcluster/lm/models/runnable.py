"""Whether the engine can run the model of a header: its architecture, or all that is in the way. Without torch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lm.files.error import ModelFileError, shown
from simcluster.lm.files.pieces import FileTensor
from simcluster.lm.files.safetensors import ITEM_BYTES
from simcluster.lm.formats import FORMATS, HELD
from simcluster.lm.headers.header import ModelHeader
from simcluster.lm.models.architecture import Architecture
from simcluster.lm.models.dequantise import CONVERT
from simcluster.lm.plan.shape import PRESETS, ModelShape, with_weights
from simcluster.units import format_size

_GGUF: Final = {
    "embedding": "token_embd", "norm": "output_norm", "output": "output", "norm_attention": "attn_norm",
    "query": "attn_q", "key": "attn_k", "value": "attn_v", "merge": "attn_output", "norm_feed": "ffn_norm",
    "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip
_HUGGING_FACE: Final = {
    "embedding": "model.embed_tokens", "norm": "model.norm", "output": "lm_head",
    "norm_attention": "input_layernorm", "query": "self_attn.q_proj", "key": "self_attn.k_proj",
    "value": "self_attn.v_proj", "merge": "self_attn.o_proj", "norm_feed": "post_attention_layernorm",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip
_ONLY: Final = {
    "model_type": ("llama",),
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "sliding_window": (None,),
    "quantization_config": (None,),
    "quantization": (None,),
}
"""Settings of a config.json that change what is computed -> the values that are supported."""


def tensor_key(header: ModelHeader, name: str, layer: int | None) -> str:
    """Return the name in *header* of the tensor that is *name* here, of *layer*."""
    if header.is_gguf:
        return f"{'' if layer is None else f'blk.{layer}.'}{_GGUF[name]}.weight"
    return f"{'' if layer is None else f'model.layers.{layer}.'}{_HUGGING_FACE[name]}.weight"


def architecture_of(header: ModelHeader) -> Architecture:
    """Return the architecture of the model of *header*. Raise UsageError with all that the engine cannot run."""
    facts, shape, is_gguf = header.facts, header.shape, header.is_gguf
    problems = list(_settings(header))
    together = facts.values.get("rope_parameters")  # as newer versions of transformers write them
    base = together.get("rope_theta", 10_000.0) if isinstance(together, dict) else 10_000.0
    numbers = {"rope_base": ("rope_theta", base), "epsilon": ("rms_norm_eps", 1e-6)}
    if is_gguf:
        numbers = {"rope_base": ("rope.freq_base", base), "epsilon": ("attention.layer_norm_rms_epsilon", None)}
    found = dict.fromkeys(numbers, 1.0)
    for name, (key, default) in numbers.items():
        try:
            found[name] = facts.positive(key, default=default)
        except UsageError as error:
            problems += error.problems
    architecture = Architecture(
        shape.layers, shape.width, shape.heads, shape.kv_heads, shape.head_size, shape.ffn_width, shape.vocabulary,
        shape.context or 0, gated=True, tied=shape.tied, pairs="interleaved" if is_gguf else "half", **found,
    )  # fmt: skip
    problems = problems or list(_tensors(header, architecture) if header.tensors else ())
    raise_all(problems)
    return architecture


def serving_note(header: ModelHeader | None, shape: ModelShape, weights: str | None) -> str:
    """Return what a plan of *shape* in *weights* (None: in the model's own format) counts that `serve` does not do, or
    "". *header*: None of a preset.
    """
    if header is None:
        if shape.name != PRESETS["smollm2"].name:
            return f"serve has no weights of {shape.name}; times alone: generate with --prompt-tokens N"
    else:
        try:
            architecture_of(header)
        except UsageError as error:
            why = error.problems[0]
            return f"serve cannot run this model ({why.key}: {why.found}); times alone: generate with --prompt-tokens N"
    if weights in HELD or (weights is None and shape.whole_bytes == shape.weights * FORMATS[HELD[0]]):
        return ""
    whole = format_size(round(with_weights(shape, HELD[0]).whole_bytes))
    return f"serve holds weights in {', '.join(HELD)}, by default in {HELD[0]}: {whole}"


def _settings(header: ModelHeader) -> Iterator[Problem]:
    """Yield what the engine cannot compute of the settings of *header*."""
    values, file, shape = header.facts.values, str(header.facts.file), header.shape
    plain = "plain rotations"
    if header.is_gguf:
        if (kind := values.get("general.architecture")) != "llama":
            yield Problem("general.architecture", repr(kind), "'llama'", file)
        if shape.parts.routed:
            yield Problem("llama.expert_count", str(shape.parts.experts), "a model without experts", file)
        if "rope_freqs.weight" in header.tensors:
            yield Problem("rope_freqs.weight", "rotations scaled as by rope_type llama3", plain, file)
        if (scaling := values.get("llama.rope.scaling.type")) not in (None, "none"):
            yield Problem("llama.rope.scaling.type", shown(scaling), plain, file)
        if (rotated := values.get("llama.rope.dimension_count", shape.head_size)) != shape.head_size:
            expected = f"the width of a head, {shape.head_size}"
            yield Problem("llama.rope.dimension_count", shown(rotated), expected, file)
    for key, allowed in _ONLY.items() if not header.is_gguf else ():
        if (found := values.get(key, allowed[-1])) not in allowed:
            method = found.get("quant_method", shown(found)) if isinstance(found, dict) else shown(found)
            yield Problem(key, str(method)[:60], repr(allowed[0]), file)
    for key in ("rope_scaling", "rope_parameters") if not header.is_gguf else ():
        found = values.get(key) or {}
        kind = found.get("rope_type", found.get("type", "default")) if isinstance(found, dict) else found
        if kind != "default" or (key == "rope_scaling" and "factor" in found):
            yield Problem(key, f"rope_type {str(kind)[:60]}", plain, file)
    if shape.head_size % 2:
        yield Problem("head_dim", str(shape.head_size), "an even number", file)
    if shape.context is None:
        yield Problem("max_position_embeddings", "nothing", "the model's context", file)


def _tensors(header: ModelHeader, architecture: Architecture) -> Iterator[Problem]:
    """Yield the first tensor that is missing, of another shape or type than the engine's, or not computed by it."""
    file, known = header.facts.file, CONVERT if header.is_gguf else ITEM_BYTES
    expected = {tensor_key(header, *name): architecture.shapes(name[0]) for name in architecture.names()}
    if (error := wrong_tensor(header.tensors, expected, known, file)) is not None:
        return (yield from error.problems)
    rest = (key for key in header.tensors if key not in expected and "inv_freq" not in key)
    strange = [key for key in rest if not (architecture.tied and "lm_head" in key)]
    if strange:
        yield Problem(strange[0][:60], "a tensor that the engine does not compute", "none of this name", str(file))


def wrong_tensor(
    tensors: Mapping[str, FileTensor], expected: Mapping[str, tuple[int, ...]], known: Collection[str], file: object
) -> ModelFileError | None:
    """Return an error for the first of *expected*, name -> shape, that *tensors* lack or have in another shape, or in a
    type that is not *known*; None if all are well.
    """
    for key, shape in expected.items():
        if (place := tensors.get(key)) is None:
            return ModelFileError(file, key, "no such tensor", f"one of shape {shape}")
        if place.shape != shape:
            return ModelFileError(file, key, f"the shape {place.shape}", f"{shape}")
        if place.kind not in known:
            return ModelFileError(file, key, f"weights of type {place.kind}", f"one of {', '.join(known)}")
    return None
