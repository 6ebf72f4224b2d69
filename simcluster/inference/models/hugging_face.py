"""A model of the Llama architecture in a Hugging Face folder: config.json, safetensors files, tokenizer.json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from simcluster.inference.files.error import ModelFileError, refusing
from simcluster.inference.files.pieces import MOST_CONFIG, read_json
from simcluster.inference.models.architecture import Architecture
from simcluster.inference.models.model_file import ModelFile
from simcluster.inference.models.tensor_files import TensorFiles
from simcluster.inference.models.tokenizer import Tokenizer
from simcluster.inference.models.tokens import Tokens
from simcluster.paths.inside import listed, open_file, read

CONFIG: Final = "config.json"
SUFFIX: Final = ".safetensors"
MOST_FILES, MOST_TOKENIZER = 1_000, 64 * 2**20
"""Limits on the files of weights, and the bytes of a tokenizer.json."""

_WHOLE = {"embedding": "model.embed_tokens", "norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "norm_attention": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "merge": "self_attn.o_proj",
    "norm_feed": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_ONLY = {
    "model_type": ("llama",),
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "rope_scaling": (None,),
    "sliding_window": (None,),
    "quantization_config": (None,),
}
"""Settings that change what is computed -> the values that are supported."""


class HuggingFaceFolder(ModelFile):
    """The model in *folder*, in *file* if given, otherwise in all its safetensors files. No link is followed."""

    def __init__(self, folder: Path, file: str | None = None) -> None:
        super().__init__(folder, folder.resolve().name)
        self._config: dict[str, Any] = self._json(CONFIG, MOST_CONFIG)
        self.architecture = self._architecture()
        self._tensors = TensorFiles(folder, [file] if file else self._files())

    def read(self, name: str, layer: int | None, first: int, last: int) -> Tensor:
        key = _WHOLE.get(name, name) if layer is None else f"model.layers.{layer}.{_LAYER[name]}"
        return self._tensors.read(f"{key}.weight", self.architecture.shapes(name), first, last)

    def _json(self, name: str, most: int) -> dict[str, Any]:
        """Return the mapping in the file *name*."""
        with refusing(self.path / name, "file", "a JSON mapping"), open_file(self.path, name) as file:
            found = read_json(file, most)
            if not isinstance(found, dict):
                raise ValueError(f"a {type(found).__name__}")
            return found

    def _files(self) -> list[str]:
        names = self._names()
        if "model.safetensors" in names:
            return ["model.safetensors"]
        found = [name for name in names if name.endswith(SUFFIX)]
        if not 0 < len(found) <= MOST_FILES:
            raise ModelFileError(self.path, "weights", f"{len(found)} safetensors files", f"1 to {MOST_FILES}")
        return found

    def _names(self) -> list[str]:
        with refusing(self.path, "folder", "one that can be listed"):
            return listed(self.path)

    def _architecture(self) -> Architecture:
        config = self._config
        for key, values in _ONLY.items():
            if config.get(key, values[-1]) not in values:
                raise self._wrong(key, f"{values[0]!r}")
        rope = config.get("rope_parameters") or {}  # where newer versions of transformers write what follows
        if not isinstance(rope, dict) or rope.get("rope_type", "default") != "default":
            raise self._wrong("rope_parameters", "rope_type 'default'")
        base = self._positive("rope_theta", rope.get("rope_theta", 10_000.0))
        width, heads = self._count("hidden_size"), self._count("num_attention_heads")
        kv_heads = self._count("num_key_value_heads", heads)
        head_width = self._count("head_dim", max(1, width // heads))
        if heads % kv_heads:
            raise self._wrong("num_key_value_heads", f"a divisor of {heads}")
        if head_width % 2:
            raise self._wrong("head_dim", "an even number")
        return Architecture(
            self._count("num_hidden_layers"), width, heads, kv_heads, head_width, self._count("intermediate_size"),
            self._count("vocab_size"), self._count("max_position_embeddings"), gated=True,
            tied=config.get("tie_word_embeddings", False) is True, rope_base=base, pairs="half",
            epsilon=self._positive("rms_norm_eps", 1e-6),
        )  # fmt: skip

    def _wrong(self, key: str, expected: str) -> ModelFileError:
        return ModelFileError(self.path / CONFIG, key, repr(self._config.get(key))[:200], expected)

    def _count(self, key: str, default: int | None = None) -> int:
        value = self._config.get(key)
        value = default if value is None else value
        if type(value) is not int or not 0 < value < 2**31:
            raise self._wrong(key, "a whole number above 0")
        return value

    def _positive(self, key: str, default: float) -> float:
        value = self._config.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise self._wrong(key, "a number above 0")
        return float(value)

    def _tokenizer(self) -> Tokens | None:
        name = "tokenizer.json"
        if name not in self._names():
            return None
        found = self._json(name, MOST_TOKENIZER)
        model = found["model"]
        if model["type"] != "BPE" or found.get("normalizer") is not None or model.get("byte_fallback"):
            raise ModelFileError(self.path / name, "model", repr(model["type"])[:100], "byte-level BPE, not normalised")
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        added = {token["content"]: token["id"] for token in found.get("added_tokens") or []}
        tokens = [""] * self.architecture.vocabulary
        for token, place in {**model["vocab"], **added}.items():
            if type(place) is not int or not 0 <= place < len(tokens):
                raise ModelFileError(self.path / name, "vocab", repr(place)[:100], f"0 to {len(tokens) - 1:,}")
            tokens[place] = token
        return Tokenizer(tokens, merges, _pre(found.get("pre_tokenizer")), added.values())

    def _template(self) -> str | None:
        names = self._names()
        if "chat_template.jinja" in names:
            return read(self.path, "chat_template.jinja", most_bytes=MOST_CONFIG).decode()
        if "tokenizer_config.json" not in names:
            return None
        template = self._json("tokenizer_config.json", MOST_CONFIG).get("chat_template")
        return None if template is None else str(template)

    def _ends(self) -> Sequence[object]:
        found = self._config.get("eos_token_id")
        return found if isinstance(found, list) else [found]


def _pre(found: Any) -> str:
    """Return the name of the pre-tokenizer that a tokenizer.json describes, or the description itself."""
    parts = found["pretokenizers"] if isinstance(found, dict) and found.get("type") == "Sequence" else [found]
    digits = parts[0] == {"type": "Digits", "individual_digits": True}
    rest = parts[1:] if digits else parts
    if len(rest) == 1 and isinstance(rest[0], dict):
        kind, prefix, regex = (rest[0].get(key) for key in ("type", "add_prefix_space", "use_regex"))
        if (kind, prefix) == ("ByteLevel", False) and regex in (True, None):
            return "smollm" if digits else "gpt-2"
    return repr(found)[:200]
