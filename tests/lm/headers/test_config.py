"""A config.json of a known family counts as published; all else is refused by the name of its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lm.headers.read import shape_of
from tests.lm.headers.public import PUBLIC, SCALED, llama

MIXTRAL = PUBLIC["mixtral 8x7b"][0]
TINY = llama("llama", 2, 8, 4, 2, 16, 32)


def config(folder: Path, found: Any) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(found))
    return str(folder / "config.json")


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_model_has_its_published_size(name: str, tmp_path: Path) -> None:
    found, billions = PUBLIC[name]
    assert shape_of(config(tmp_path, found)).weights == pytest.approx(billions * 1e9, rel=0.01)


def test_experts_are_all_held_and_those_of_a_token_are_read(tmp_path: Path) -> None:
    shape = shape_of(config(tmp_path, MIXTRAL))
    # 32 layers of 8 experts of 3 x 4096 x 14336; a token takes 2 of them.
    assert (shape.weights, shape.parts.routed) == (46_702_792_704, 32 * 8 * 3 * 4096 * 14336)
    assert shape.active_weights == 46_702_792_704 - 32 * 6 * 3 * 4096 * 14336
    assert shape.whole_bytes == 2 * 46_702_792_704


def test_latent_attention_caches_one_vector_for_all_heads(tmp_path: Path) -> None:
    shape = shape_of(config(tmp_path, PUBLIC["deepseek-v3"][0]))
    assert (shape.cached, shape.kv_heads) == (512 + 64, 1)
    assert shape.active_weights == pytest.approx(37e9, rel=0.02)  # as its card says


@pytest.mark.parametrize(
    ("quantised", "bits"),
    [
        ({"quantization": {"group_size": 64, "bits": 4}}, 4.5),
        ({"quantization": {"group_size": 32, "bits": 8, "mode": "mxfp8"}}, 8.25),
        ({"quantization": {"group_size": 64, "bits": 4, "model.layers.0.mlp.gate": {"bits": 8}}}, 4.5),
    ],
)
def test_a_folder_that_is_quantised_as_a_whole_has_its_bits(quantised: Any, bits: float, tmp_path: Path) -> None:
    shape = shape_of(config(tmp_path, TINY | quantised))
    assert 8 * shape.whole_bytes / shape.weights == pytest.approx(bits)


@pytest.mark.parametrize(
    ("quantised", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + (16 + 4) / 128),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 4 + (16 + 4) / 64),
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
    ],
)
def test_quantised_layers_have_their_bits_and_tables_16(quantised: Any, bits: float, tmp_path: Path) -> None:
    shape = shape_of(config(tmp_path, TINY | {"quantization_config": quantised}))
    assert 8 * shape.layer_bytes * 2 / (shape.weights - 2 * 32 * 8 - 8) == pytest.approx(bits)
    assert shape.table_bytes == 2.0


def test_the_experts_alone_of_mxfp4_have_four_bits(tmp_path: Path) -> None:
    shape = shape_of(config(tmp_path, PUBLIC["gpt-oss-20b"][0]))
    assert (shape.weight_bytes, shape.table_bytes, shape.expert_bytes) == (2.0, 2.0, 17 / 32)
    assert shape.whole_bytes == pytest.approx(13.76e9, rel=0.01)  # its files


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (llama("bert", 12, 768, 12, 12, 3072, 30522), "model_type: found 'bert', expected a decoder"),
        ({"model_type": "t5", "d_model": 512, "num_layers": 6}, "model_type: found 't5', expected a decoder"),
        ({"model_type": "vit", "hidden_size": 768}, "model_type: found 'vit'"),
        ({"model_type": "llama4", "text_config": {}, "vision_config": {}}, "found 'llama4', expected a model of text"),
        (llama("mamba", 2, 8, 4, 2, 16, 32), "model_type: found 'mamba'"),
        (TINY | {"vision_config": {"hidden_size": 8}}, "model_type: found 'llama'"),
        (TINY | {"num_local_experts": 8}, "num_local_experts: found 8, expected no such key in a model of type llama"),
        (TINY | {"kv_lora_rank_2": 8}, "kv_lora_rank_2: found 8, expected no such key"),
        (TINY | {"layer_types": ["full_attention", "linear_attention"]}, "layer_types: found"),
        (TINY | {"quantization_config": {"quant_method": "aqlm"}}, "quant_method: found 'aqlm', expected gptq, awq"),
        (TINY | {"quantization": {"bits": 4, "model.a": {"bits": 6}}}, "quantization: found 'other bits for model.a'"),
        (TINY | {"torch_dtype": "int3"}, "torch_dtype: found 'int3'"),
        (TINY | {"num_hidden_layers": 0}, "num_hidden_layers: found 0, expected a whole number from 1 to 1,024"),
        (TINY | {"hidden_size": "8"}, "hidden_size: found '8', expected a whole number"),
        (TINY | {"vocab_size": 2**31}, "vocab_size: found 2147483648, expected a whole number from 1 to 10,000,000"),
        (TINY | {"vocab_size": 10**400}, "vocab_size: found 1000"),
        (TINY | {"num_key_value_heads": 3}, "num_key_value_heads: found 3, expected a divisor of 4 heads"),
        (MIXTRAL | {"num_experts_per_tok": 9}, "num_experts_per_tok: found 9, expected a whole number from 1 to 8"),
        (MIXTRAL | {"num_local_experts": None}, "num_local_experts: found nothing"),
        ([], "a JSON mapping"),
    ],
)
def test_what_is_not_known_is_refused_by_its_key(found: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        shape_of(config(tmp_path, found))
    assert said in str(error.value)
    assert len(str(error.value)) < 1500


def test_keys_that_change_no_size_are_no_matter(tmp_path: Path) -> None:
    more = {"bos_token_id": 1, "num_labels": 2, "rope_scaling": SCALED, "use_cache": True, "initializer_range": 0.02,
            "transformers_version": "4.46.0", "pretraining_tp": 1, "id2label": {"0": "a"}}  # fmt: skip
    assert shape_of(config(tmp_path, TINY | more)) == shape_of(config(tmp_path, TINY))


@pytest.mark.parametrize("content", ["[" * 100_000, " " * (2**20 + 1), '{"hidden_size": ' + "9" * 5000 + "}"])
def test_a_hostile_config_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="a JSON mapping"):
        shape_of(str(path))
