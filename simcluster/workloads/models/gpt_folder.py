"""A trained `gpt` as a directory of Hugging Face's library transformers, in the form of GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.workloads.models.bpe import BYTES, BpeTokenizer
from simcluster.workloads.models.gpt import LEARNT, SIZES
from simcluster.workloads.models.text import tokenizer as learnt_tokenizer

_SPACE = r" \t\n\r\f\v"
_WORD = rf" ?[A-Za-z_]+| ?[0-9]+| ?[^{_SPACE}A-Za-z0-9_]+|[{_SPACE}]+"
"""The words of `bpe`, for text instead of bytes."""


def gpt2_folder(weights: Mapping[str, Tensor], block: Mapping[str, Any]) -> dict[str, bytes]:
    """Return name -> content of the files of the model with *weights*; *block* has the settings of
    the workload that trained it.

    Raise UsageError if GPT-2's form cannot hold the model: another workload's, one with gates or
    experts, or one with heads that share keys and values or have another width.
    """
    if block.get("name") != "gpt":
        found = f"the workload {block.get('name') or block.get('path')}"
        raise UsageError("--to transformers", found, "gpt, whose form transformers knows")
    if any(".experts." in name for name in weights):
        raise UsageError("workload.experts", repr(block.get("experts")), "none: GPT-2's form has no experts")
    layers = sum(name.endswith("split.weight") for name in weights)
    width, feed_forward = weights["blocks.0.down.weight"].shape
    problems = []
    if weights["blocks.0.up.weight"].shape[0] != feed_forward:
        problems.append(Problem("workload.size", repr(block.get("size")), "one without gates, such as tiny or 125m"))
    heads_width = weights["blocks.0.merge.weight"].shape[1]
    if heads_width != width:
        found = f"heads that are together {heads_width} wide"
        problems.append(Problem("workload.head_width", found, f"{width}, the width of the model"))
    if weights["blocks.0.split.weight"].shape[0] != 3 * heads_width:
        problems.append(Problem("workload.kv_heads", repr(block.get("kv_heads")), "as many as heads"))
    raise_all(problems)
    vocabulary, context = weights["embedding.weight"].shape[0], weights["position.weight"].shape[0]
    config = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "dtype": "float32",
        "n_layer": layers, "n_embd": width, "n_inner": feed_forward, "n_positions": context, "vocab_size": vocabulary,
        "n_head": block.get("heads") or SIZES[block["size"]].heads,
        "activation_function": "gelu", "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": "output.weight" not in weights,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context}
    return {
        "model.safetensors": safetensors.torch.save(_renamed(weights, layers), {"format": "pt"}),
        "tokenizer.json": _tokenizer(block, vocabulary),
        "tokenizer_config.json": json.dumps(named, indent=2).encode(),
        "config.json": json.dumps(config, indent=2).encode(),
    }


def _renamed(weights: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Return *weights* under GPT-2's names. Its products have transposed weights, and biases, which
    are 0 here.
    """
    found = {
        "transformer.wte.weight": weights["embedding.weight"],
        "transformer.wpe.weight": weights["position.weight"],
    }
    for layer in range(layers):
        own, theirs = f"blocks.{layer}", f"transformer.h.{layer}"
        for ours, name in (("norm_attention", "ln_1"), ("norm_feed", "ln_2")):
            found |= _with_bias(f"{theirs}.{name}", weights[f"{own}.{ours}.weight"])
        products = (("split", "attn.c_attn"), ("merge", "attn.c_proj"), ("up", "mlp.c_fc"), ("down", "mlp.c_proj"))
        for ours, name in products:
            found |= _with_bias(f"{theirs}.{name}", weights[f"{own}.{ours}.weight"].T.contiguous())
    found |= _with_bias("transformer.ln_f", weights["norm.weight"])
    return found | ({"lm_head.weight": weights["output.weight"]} if "output.weight" in weights else {})


def _with_bias(name: str, weight: Tensor) -> dict[str, Tensor]:
    return {f"{name}.weight": weight, f"{name}.bias": torch.zeros(weight.shape[-1], dtype=weight.dtype)}


def _tokenizer(block: Mapping[str, Any], vocabulary: int) -> bytes:
    """Return the tokenizer.json of the workload *block*: the file that it names, or one of *vocabulary*
    tokens that cuts texts as its bytes or pairs of bytes do.
    """
    named = block.get("tokenizer", "bytes")
    if named not in LEARNT:
        try:
            return Path(named).read_bytes()
        except OSError as error:
            raise UsageError("workload.tokenizer", f"cannot read {named}: {error.strerror}", "the file") from None
    if named == "bytes":
        return _byte_level(BpeTokenizer(()))
    return _byte_level(learnt_tokenizer(block.get("data"), vocabulary))


def _byte_level(tokenizer: BpeTokenizer) -> bytes:
    """Return *tokenizer* as a byte-level tokenizer.json.

    In its vocabulary each byte is a printable letter: itself if it is printable in Latin-1, else
    one of the letters from number 256 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(BYTES, 2 * BYTES))
    letters = [chr(byte if byte in printable else next(others)) for byte in range(BYTES)]
    spelt = ["".join(letters[byte] for byte in token) for token in tokenizer.spelt()]
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    words = {"type": "Split", "pattern": {"Regex": _WORD}, "behavior": "Isolated", "invert": False}
    content: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [words, levels]},
        "post_processor": None, "decoder": levels,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": {text: number for number, text in enumerate(spelt)},
            "merges": [[spelt[first], spelt[second]] for first, second in tokenizer.merges],
        },
    }  # fmt: skip
    return json.dumps(content, ensure_ascii=False).encode()
