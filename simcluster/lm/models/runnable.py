"""Check whether the engine can run the model of a header; list all obstacles.

This module needs neither torch nor transformers, so that commands that only plan can use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simcluster.errors import Problem, raise_all
from simcluster.lm.files.error import ModelFileError
from simcluster.lm.formats import DEFAULT, FORMATS
from simcluster.lm.headers.header import ModelHeader
from simcluster.lm.models.gguf_config import TYPES
from simcluster.lm.models.quantised_folder import plain_tensors
from simcluster.lm.plan.shape import PRESETS, ModelShape, with_held_weights
from simcluster.units import format_size

FAMILIES: Final = (*TYPES.values(), "mistral", "mixtral")
"""Values of `model_type` in a config.json that the engine runs."""

ROTATIONS: Final = ("default", "linear", "llama3", "yarn")

READABLE: Final = {
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
    "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4",
}  # fmt: skip
"""Types of GGUF's tensors that the package gguf converts to f32."""


def check_runnable(header: ModelHeader) -> None:
    """Raise UsageError with all settings of the model with *header* that the engine cannot run."""
    raise_all(list(obstacles(header)))


def obstacles(header: ModelHeader) -> Iterator[Problem]:
    """Yield a problem for each setting of *header* that the engine cannot run.

    For tensors, yield only the first problem.
    """
    values = header.facts.values
    file = str(header.facts.file)
    kind = str(values.get("general.architecture" if header.is_gguf else "model_type"))
    known = tuple(TYPES) if header.is_gguf else FAMILIES
    if kind not in known:
        key = "general.architecture" if header.is_gguf else "model_type"
        yield Problem(key, repr(kind)[:60], f"one of {', '.join(sorted(known))}", file)
    if not header.is_gguf:
        yield from _of_folder(header)
    elif strange := [(key, one.kind) for key, one in header.tensors.items() if one.kind not in READABLE]:
        yield Problem(strange[0][0][:60], f"weights of type {strange[0][1]}", ", ".join(sorted(READABLE)), file)
    if not header.is_gguf and values.get("use_bidirectional_attention"):
        yield Problem("use_bidirectional_attention", "true", "false: a token sees only those before it", file)
    if header.shape.head_size % 2:
        yield Problem("head_dim", str(header.shape.head_size), "an even number", file)
    if header.shape.context is None:
        yield Problem("max_position_embeddings", "nothing", "the model's context", file)


def _of_folder(header: ModelHeader) -> Iterator[Problem]:
    values = header.facts.values
    file = str(header.facts.file)
    try:
        plain_tensors(header)
    except ModelFileError as error:
        yield from error.problems
    for key in ("rope_scaling", "rope_parameters"):
        found = values.get(key) or {}
        inner = [found, *found.values()] if isinstance(found, dict) else []
        for one in inner:
            kind = one.get("rope_type", one.get("type", "default")) if isinstance(one, dict) else "default"
            if kind not in ROTATIONS:
                yield Problem(key, f"rope_type {str(kind)[:60]}", f"one of {', '.join(ROTATIONS)}", file)


def serving_note(header: ModelHeader | None, shape: ModelShape, weights: str | None) -> str:
    """Return a note on how `serve` differs from a plan of *shape* in *weights*, or "".

    *weights* is None for the model's own format. *header* is None for a preset.
    """
    if header is None:
        if shape.name != PRESETS["smollm2"].name:
            return f"serve has no weights of {shape.name}; times alone: generate with --prompt-tokens N"
    elif (why := next(obstacles(header), None)) is not None:
        return f"serve cannot run this model ({why.key}: {why.found}); times alone: generate with --prompt-tokens N"
    if weights is not None or shape.whole_bytes == shape.weights * FORMATS[DEFAULT]:
        return ""
    whole = format_size(round(with_held_weights(shape, DEFAULT).whole_bytes))
    return f"serve holds weights in {', '.join(FORMATS)}, by default in {DEFAULT}: {whole}"
