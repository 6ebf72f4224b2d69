"""Folders as Hugging Face writes them: logits against the slow reference, tokenizers, and what is refused."""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from simcluster.errors import UsageError
from simcluster.lm.files.error import ModelFileError
from simcluster.lm.models import runnable
from simcluster.lm.models.decoder import SequencePart
from simcluster.lm.models.open import open_model
from simcluster.lm.models.tokenizer import _spelling
from tests.lm.models import by_numpy, tiny
from tests.lm.models.test_chat import PLAIN

NAMES = runnable._HUGGING_FACE
# Heads of 8, not of 24 / 6 as a reader that computes it would find.
WIDE = replace(tiny.HALVES, head_width=8, tied=False)


def config(a, **changed):
    return {
        "model_type": "llama", "num_hidden_layers": a.layers, "hidden_size": a.width, "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads, "head_dim": a.head_width, "intermediate_size": a.feed_forward,
        "vocab_size": a.vocabulary, "max_position_embeddings": a.context, "tie_word_embeddings": a.tied,
        "rope_theta": a.rope_base, "rms_norm_eps": a.epsilon, "hidden_act": "silu", "eos_token_id": 7,
    } | changed  # fmt: skip


def named(a, dtype=torch.float32):
    """Return the seeded tensors of *a* by their names at Hugging Face."""
    return {
        f"{'' if layer is None else f'model.layers.{layer}.'}{NAMES[name]}.weight": tensor.to(dtype)
        for (name, layer), tensor in tiny.tensors(a).items()
        if name != "position" and not (name == "output" and a.tied)
    }


def write(folder, a, files=1, dtype=torch.float32, **changed):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(a, **changed)))
    tensors = list(named(a, dtype).items())
    for i in range(files):
        name = "model.safetensors" if files == 1 else f"model-{i + 1:05}-of-{files:05}.safetensors"
        save_file(dict(tensors[i::files]), folder / name)
    return folder


def logits(model, tokens, *cuts):
    stream = torch.tensor(tokens)
    for first, last in itertools.pairwise(cuts):
        share = model.share(first, last)
        (stream,) = share.forward([SequencePart(share.cache(16), stream)])
    return stream.numpy()


@pytest.mark.parametrize("a", [tiny.HALVES, WIDE], ids=["tied", "untied, wide heads"])
@pytest.mark.parametrize("files", [1, 3])
def test_logits_are_those_of_the_reference(tmp_path, a, files):
    model = open_model(str(write(tmp_path / "model", a, files)))
    assert model.architecture == a
    expected = by_numpy.logits(a, tiny.tensors(a), [3, 1, 4, 1, 5])
    np.testing.assert_allclose(logits(model, [3, 1, 4, 1, 5], 0, 1, 4), expected, atol=1e-4, rtol=1e-4)


def test_one_file_is_opened_by_its_path_and_newer_names_are_read(tmp_path):
    folder = write(tmp_path / "model", tiny.HALVES, rope_theta=None, rope_parameters={"rope_theta": 1e4})
    model = open_model(str(folder / "model.safetensors"))
    assert model.architecture == tiny.HALVES
    assert (model.name, model.tokenizer, model.chat, model.ends) == ("model", None, None, frozenset({7}))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_weights_of_other_types_become_f32(tmp_path, dtype):
    model = open_model(str(write(tmp_path / "model", tiny.HALVES, dtype=dtype)))
    found = model.read("up", 2, 0, 40)
    assert found.dtype == torch.float32
    assert torch.equal(found, tiny.tensors(tiny.HALVES)["up", 2].to(dtype).float())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "mamba"}, "model_type: found 'mamba', expected a decoder"),
        ({"model_type": "mistral"}, "model_type: found 'mistral', expected 'llama'"),
        ({"hidden_act": "gelu"}, "hidden_act: found 'gelu', expected 'silu'"),
        ({"attention_bias": True}, "weights: found 19,080 in the tensors"),
        (
            {"rope_scaling": {"factor": 2, "rope_type": "llama3"}},
            "rope_scaling: found rope_type llama3, expected plain",
        ),
        ({"rope_scaling": {"factor": 2}}, "rope_scaling: found rope_type default, expected plain rotations"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters: found rope_type yarn"),
        ({"sliding_window": 4}, "sliding_window: found 4"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: found"),
        ({"num_key_value_heads": 4}, "expected a divisor of 6"),
        ({"head_dim": 3}, "weights: found 19,080 in the tensors, expected 17,544 by config.json"),
        ({"hidden_size": "24"}, "hidden_size: found '24', expected a whole number"),
        ({"rms_norm_eps": 0}, "rms_norm_eps: found 0"),
        ({"rms_norm_eps": 10**400}, r"rms_norm_eps: found 10{59}\.\.\., expected a number above 0"),
        ({"rope_theta": 10**400}, r"rope_theta: found 10{59}\.\.\., expected a number above 0"),
        ({"vocab_size": 2 * 10**8}, "vocab_size: found 200000000, expected a whole number"),
        ({"vocab_size": 10**7}, "weights: found 19,080 in the tensors"),
        ({"intermediate_size": 41}, "weights: found 19,080 in the tensors, expected 19,368 by config.json"),
        ({"num_hidden_layers": 5}, "layer 4: input_layernorm.weight: found no such tensor"),
        ({"tie_word_embeddings": False}, "lm_head.weight: found no such tensor"),
        ({"eos_token_id": 50}, "end of text: found 50"),
        ({"eos_token_id": "x" * 10**5}, "end of text: found 'x{59}\\.\\.\\., expected a token's id"),
    ],
)
def test_a_folder_of_something_else_is_refused_by_name(tmp_path, changed, said):
    folder = write(tmp_path / "model", tiny.HALVES, **changed)
    with pytest.raises(UsageError, match=said) as error:
        assert open_model(str(folder)).ends is not None
    assert len(str(error.value)) < 1500


def test_a_tensor_of_another_shape_or_name_is_found_when_the_model_is_opened(tmp_path):
    folder, name = write(tmp_path / "model", tiny.HALVES), "model.layers.{}.mlp.up_proj.weight"
    turned = named(tiny.HALVES) | {name.format(1): torch.zeros(24, 40)}
    save_file(turned, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"layers\.1\.mlp\.up_proj\.weight: found the shape \(24, 40\)"):
        open_model(str(folder))
    other = named(tiny.HALVES)
    for layer in range(4):
        other[f"model.layers.{layer}.mlp.other.weight"] = other.pop(name.format(layer))
    save_file(other, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"layers\.0\.mlp\.up_proj\.weight: found no such tensor"):
        open_model(str(folder))


def test_a_tensor_that_the_engine_does_not_compute_is_refused(tmp_path):
    folder = write(tmp_path / "model", tiny.HALVES)
    extra = {f"model.layers.{layer}.self_attn.q_norm.weight": torch.ones(1) for layer in range(4)}
    save_file(named(tiny.HALVES) | extra, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"q_norm\.weight: found a tensor that the engine does not compute"):
        open_model(str(folder))


def test_a_tensor_outside_its_file_is_refused_before_memory_is_taken(tmp_path):
    folder = write(tmp_path / "model", tiny.HALVES, vocab_size=10**7)
    huge = {"dtype": "F32", "shape": [10**7, 24], "data_offsets": [0, 4 * 24 * 10**7]}
    text = json.dumps({"model.embed_tokens.weight": huge}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(1000))
    with pytest.raises(ModelFileError, match=r"embed_tokens.weight: found 1,\d\d\d bytes, and a tensor at"):
        open_model(str(folder))
    short = huge | {"data_offsets": [0, 96]}
    text = json.dumps({"model.embed_tokens.weight": short}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(1000))
    with pytest.raises(ModelFileError, match=r"embed_tokens\.weight: found 96 bytes, expected those of"):
        open_model(str(folder))


def test_links_in_a_folder_are_not_followed(tmp_path):
    folder = write(tmp_path / "model", tiny.HALVES)
    weights = folder / "model.safetensors"
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFileError, match="symbolic link, which is not followed"):
        open_model(str(folder))


def test_a_folder_without_weights_or_without_a_model_is_refused(tmp_path):
    folder = write(tmp_path / "model", tiny.HALVES)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match="weights: found none, expected the model's"):
        open_model(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(ModelFileError, match=r"neither config.json nor a run's config.yaml"):
        open_model(str(folder))
    with pytest.raises(UsageError, match=r"no such file and no such name, expected a name \(smollm2\)"):
        open_model(str(tmp_path / "none"))


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]}


def tokenizer_json(pre, merges=(["1", "2"], "h e")):
    vocabulary = {token: i for i, token in enumerate([*_spelling().values(), "12", "he"])}
    marks = [{"id": 258 + i, "content": name} for i, name in enumerate(("<|im_start|>", "<|im_end|>"))]
    model = {"type": "BPE", "vocab": vocabulary, "merges": list(merges)}
    return {"model": model, "added_tokens": marks, "pre_tokenizer": pre, "normalizer": None}


@pytest.mark.parametrize(("pre", "tokens"), [(BYTE_LEVEL, ["12", "he"]), (DIGITS, ["1", "2", "he"])])
def test_a_tokenizer_and_a_chat_template_are_read(tmp_path, pre, tokens):
    folder = write(tmp_path / "model", replace(tiny.HALVES, vocabulary=300))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(pre)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": PLAIN}))
    model = open_model(str(folder))
    assert [model.tokenizer.decode([token]) for token in model.tokenizer.encode("12he")] == tokens
    assert model.chat.render([{"role": "user", "content": "x"}])[0] == 258
    assert model.ends == {7, 259}
    assert model.tokenizer.decode([299]) == ""  # the embedding has rows without a token
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(ModelFileError, match="chat template: found a template of 14 characters"):
        _ = open_model(str(folder)).chat


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"pre_tokenizer": {"type": "Metaspace"}},
            "tokenizer: pre-tokenizer: found \"{'type': 'Metaspace'}\", expected one of smollm, gpt-2",
        ),
        ({"normalizer": {"type": "NFC"}}, "expected byte-level BPE, not normalised"),
        ({"model": {"type": "Unigram"}}, "found 'Unigram'"),
        ({"model": {}}, "tokenizer: no type"),
        ({"added_tokens": [{"id": 300, "content": "x"}]}, "vocab: found 300, expected 0 to 299"),
        ({"added_tokens": 3}, "tokenizer: 'int' object is not iterable"),
    ],
)
def test_another_tokenizer_is_refused(tmp_path, changed, said):
    folder = write(tmp_path / "model", replace(tiny.HALVES, vocabulary=300))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(BYTE_LEVEL) | changed))
    with pytest.raises(ModelFileError) as error:
        _ = open_model(str(folder)).tokenizer
    assert said in str(error.value)
