"""Tiny seeded models of every family that the engine runs, as transformers builds and saves them.

GGUF files are written as llama.cpp's converter does, by code of its own, not by the reader's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.model_share import ModelShare, SequencePart
from simcluster.rng import torch_stream

SIZES = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 96, "vocab_size": 200, "max_position_embeddings": 256, "pad_token_id": None,
    "bos_token_id": 1, "eos_token_id": 7,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 5e5,
}  # fmt: skip
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 15e4,
    "truncate": False,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
WINDOW = {"sliding_window": 8}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": LLAMA3},
    "mistral": WINDOW,
    "qwen2": {},
    "qwen3": {"tie_word_embeddings": True},
    "gemma": {},
    "gemma2": WINDOW | {"query_pre_attn_scalar": 32},
    "gemma3_text": WINDOW | {"query_pre_attn_scalar": 32, "num_hidden_layers": 6},
    "phi3": WINDOW,
    "smollm3": {},
    "mixtral": {"num_local_experts": 4},
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 32},
    "qwen3_moe": EXPERTS | {"norm_topk_prob": True},
    "gpt_oss": WINDOW
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "rope_parameters": YARN | {"truncate": False}},
}
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 49, 0, 8, 11]


def model_of(kind: str = "llama", **changed: Any) -> Any:
    """Return the model of transformers of this family, with seeded weights."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    config = CONFIG_MAPPING[kind](**(SIZES | FAMILIES[kind] | changed))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    generator = torch_stream(7, kind)
    for name, one in model.named_parameters():
        one.requires_grad_(False)
        one.copy_(torch.randn(one.shape, generator=generator) * (0.2 if one.dim() > 1 else 0.1))
        if name.endswith("norm.weight") and not kind.startswith("gemma"):
            one.add_(1)  # Gemma's norms multiply by 1 more than their weight
    return model


def logits_of(model: Any, tokens: list[int]) -> Tensor:
    """Return transformers' logits (tokens, vocabulary)."""
    with torch.inference_mode():
        found: Tensor = model(input_ids=torch.tensor([tokens])).logits[0]
    return found


def write_folder(path: Path, model: Any, files: int = 1, dtype: torch.dtype = torch.float32, **changed: Any) -> Path:
    """Write *model* as a Hugging Face folder with *files* of weights; *changed* settings in its config.json."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(model.config.to_dict() | changed, default=str))
    tensors = {name: one.to(dtype).contiguous() for name, one in saved(model)}
    for i in range(files):
        name = "model.safetensors" if files == 1 else f"model-{i + 1:05}-of-{files:05}.safetensors"
        save_file(dict(list(tensors.items())[i::files]), path / name)
    return path


def saved(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of *model* by their names in files: experts by themselves."""
    mixtral = model.config.model_type == "mixtral"
    names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    for name, one in model.named_parameters():  # a head that is the table is left out
        own = name.replace(".mlp.", ".block_sparse_moe.") if mixtral else name
        stem, _, last = own.rpartition(".")
        if "experts." not in name or model.config.model_type == "gpt_oss":
            yield own, one
        elif last == "down_proj":
            yield from ((f"{stem}.{i}.{names[2]}.weight", expert) for i, expert in enumerate(one))
        else:
            for i, expert in enumerate(one):
                gate, up = expert.chunk(2)
                yield f"{stem}.{i}.{names[0]}.weight", gate
                yield f"{stem}.{i}.{names[1]}.weight", up


def through(shares: list[ModelShare], chunks: list[list[int]]) -> Tensor:
    """Return the logits of *chunks* of one sequence, passed through *shares*."""
    caches = [share.cache(24) for share in shares]
    rows = []
    for chunk in chunks:
        stream = torch.tensor(chunk)
        for share, cache in zip(shares, caches, strict=True):
            (stream,) = share.forward([SequencePart(cache, stream)])
        rows.append(stream)
    return torch.cat(rows)


def through_shards(shards: list[ModelShare], chunks: list[list[int]]) -> Tensor:
    """Return the logits of *chunks* of one sequence, with sums over *shards*."""
    caches = [one.cache(24) for one in shards]
    rows = []
    for chunk in chunks:
        inputs = torch.tensor(chunk)
        passes = [one.begin([SequencePart(cache, inputs)]) for one, cache in zip(shards, caches, strict=True)]
        both = list(zip(shards, passes, strict=True))
        stream = shards[0].embed(passes[0])
        for layer in range(shards[0].last):
            total = sum(one.attention(layer, now, stream) for one, now in both)
            stream = shards[0].after_attention(layer, stream, total)
            total = sum(one.feed_forward(layer, stream) for one in shards)
            stream = shards[0].after_feed(layer, stream, total)
        for now in passes:
            now.end()
        rows.append(torch.cat([one.logits(stream) for one in shards], 1))
    return torch.cat(rows)


def shards_of(file: ModelFile, count: int, **more: Any) -> list[ModelShare]:
    return [file.share(0, file.shape.layers, place=place, count=count, **more) for place in range(count)]
