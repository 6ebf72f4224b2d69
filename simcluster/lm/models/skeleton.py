"""The modules of a model without memory for their weights, as transformers builds them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final

import torch
from torch import nn

from simcluster.lm.extra import need_extra
from simcluster.lm.files.error import ModelFileError, shown
from simcluster.lm.models import attention

OLDER: Final = (
    "head_dim", "num_experts", "num_local_experts", "original_max_position_embeddings", "partial_rotary_factor",
    "rope_local_base_freq", "rope_scaling", "rope_theta", "sliding_window_pattern",
)  # fmt: skip
"""Settings that a family's config reads although it does not declare them in every version."""

MOST_SCALE: Final = 1e18
"""Limit on the scale of rotations, as torch may multiply by it as a 64-bit integer."""

TOKEN_IDS: Final = ("bos_token_id", "eos_token_id", "pad_token_id")
"""Settings that change no arithmetic; the engine reads the ends of an answer by itself."""


def config_of(values: Mapping[str, Any], file: object) -> Any:
    """Return the transformers config with *values*, which come from the model's *file*.

    Raise ModelFileError if transformers refuses them. No code from the model's files runs.
    """
    need_extra("transformers", "gguf")
    from transformers import CONFIG_MAPPING, PreTrainedConfig

    # Leave out the settings that all configs share: some, such as a number of labels, take memory,
    # and some name code to load.
    family = CONFIG_MAPPING[values["model_type"]]
    read = {*OLDER, *(one.name for one in fields(family))} - {one.name for one in fields(PreTrainedConfig)}
    plain = {key: value for key, value in values.items() if key in read} | dict.fromkeys(TOKEN_IDS)
    with _refusing(file):
        config = family.from_dict(copy.deepcopy(plain))
    if getattr(config, "head_dim", None) is None:
        config.head_dim = config.hidden_size // config.num_attention_heads
    config.pad_token_id = None
    return config


@contextmanager
def _refusing(file: object) -> Iterator[None]:
    """Turn any error of the block into a ModelFileError: the values of a file may cause any kind.

    Warnings of transformers are not logged, because they repeat strings from the file.
    """
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ModelFileError(file, "config", f"{type(error).__name__}: {said}", "what transformers takes") from None
    finally:
        logger.setLevel(level)


def cut_config(config: Any, place: int, count: int) -> Any:
    """Return *config* for shard *place* of *count*: a share of the heads and feed-forward columns.

    Raise ValueError unless *count* divides the number of KV heads.
    """
    if config.num_key_value_heads % count:
        heads = config.num_key_value_heads
        raise ValueError(f"shards: found {count}, expected a divisor of {heads} heads for keys")
    own = copy.deepcopy(config)
    own.num_attention_heads //= count
    own.num_key_value_heads //= count
    for name in ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"):
        if (whole := getattr(config, name, None)) is not None:
            setattr(own, name, whole * (place + 1) // count - whole * place // count)
    return own


def _is_aligned(config: Any) -> bool:
    """Return whether torch's grouped products take the rows of experts: multiples of 16 bytes."""
    widths = (getattr(config, name, None) or 0 for name in ("intermediate_size", "moe_intermediate_size"))
    return all(width % 8 == 0 for width in (config.hidden_size, *widths))


def skeleton_of(config: Any, file: object) -> nn.Module:
    """Return the causal language model of *config*, with all parameters on the meta device.

    Buffers that hold rotations or scales have their values. Raise ModelFileError, about *file*, if
    transformers cannot build the model.
    """
    from transformers import AttentionInterface, AutoModelForCausalLM

    AttentionInterface.register(attention.NAME, attention.attend)
    with _refusing(file), torch.device("meta"):
        build: Any = AutoModelForCausalLM.from_config
        experts = {} if _is_aligned(config) else {"experts_implementation": "eager"}
        model = build(config, attn_implementation=attention.NAME, dtype=torch.float32, **experts)
    _check_rotations(model.model.rotary_emb, config.head_dim, file)
    with _refusing(file):
        # Buffers have no values on the meta device: rebuild those of rotations and scales.
        model.model.rotary_emb = type(model.model.rotary_emb)(config=config)
    table = model.model.embed_tokens
    if hasattr(table, "scalar_embed_scale"):
        table.embed_scale = torch.tensor(table.scalar_embed_scale)
    elif config.model_type.startswith("gemma"):
        said = "a version of transformers that scales Gemma's embeddings elsewhere"
        raise ModelFileError(file, "config", said, "transformers 5.4 or newer")
    found: nn.Module = model.eval().requires_grad_(False)
    return found


def _check_rotations(module: nn.Module, width: int, file: object) -> None:
    """Raise ModelFileError unless the rotations of *module* suit heads of *width*.

    There is at most one rotation per two numbers of a head, and a scale is between 0 and
    MOST_SCALE.
    """
    for name, rotations in module.named_buffers():
        if not 0 < 2 * rotations.numel() <= width:
            raise ModelFileError(file, "config", f"{rotations.numel():,} numbers of {name}", f"1 to {width // 2}")
    for name, scale in vars(module).items():
        if name.endswith("attention_scaling") and not (isinstance(scale, (int, float)) and 0 < scale < MOST_SCALE):
            raise ModelFileError(file, "config", f"{shown(scale)}, a scale of rotations", "a number above 0")
