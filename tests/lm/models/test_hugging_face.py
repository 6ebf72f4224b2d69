"""Folders as Hugging Face writes them: logits against the slow reference, tokenizers, and what is refused."""

from __future__ import annotations

import json
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from simcluster.errors import UsageError
from simcluster.lm import extra
from simcluster.lm.files.error import ModelFileError
from simcluster.lm.models.open import open_model
from simcluster.lm.text.tokenizer import library_of
from tests.lm.text.chat_templates import CHATML
from tests.lm.text.vocabularies import byte_level
from tests.support.tiny_models import TOKENS, logits_of, model_of, through, write_folder

PLAIN_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}


def write(folder, files=1, dtype=torch.float32, sizes=None, **changed):
    """Write a tiny tied Llama of *sizes*, with *changed* settings in its config.json."""
    model = model_of("llama", **{"tie_word_embeddings": True, "vocab_size": 50, **PLAIN_ROPE, **(sizes or {})})
    return write_folder(folder, model, files, dtype, **changed)


@pytest.mark.parametrize("files", [1, 3])
def test_weights_in_one_file_or_in_several_are_the_same(tmp_path, files):
    model = model_of("qwen2")
    file = open_model(str(write_folder(tmp_path / "model", model, files)))
    torch.testing.assert_close(through([file.share(0, 4)], [TOKENS]), logits_of(model, TOKENS), atol=1e-4, rtol=1e-4)


def test_one_file_is_opened_by_its_path_and_older_names_are_read(tmp_path):
    older = {"rope_parameters": None, "rope_theta": 5e5, "rope_scaling": None}
    model = open_model(str(write(tmp_path / "model", **older) / "model.safetensors"))
    assert model.config.rope_parameters["rope_theta"] == 5e5
    assert (model.name, model.tokenizer, model.chat, model.ends) == ("model", None, None, frozenset({7}))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_weights_of_other_types_become_f32(tmp_path, dtype):
    model = open_model(str(write(tmp_path / "model", dtype=dtype)))
    name = "model.layers.2.mlp.up_proj.weight"
    found = model.read(name, 0, 96)
    expected = dict(model_of("llama", tie_word_embeddings=True, vocab_size=50, **PLAIN_ROPE).named_parameters())[name]
    assert found.dtype == torch.float32
    assert torch.equal(found, expected.to(dtype).float())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "mamba"}, "model_type: found 'mamba', expected a decoder"),
        ({"model_type": "olmo2"}, "model_type: found 'olmo2'|tensors|no such tensor"),
        ({"hidden_act": "nonsense"}, "config: .*nonsense"),
        ({"attention_bias": True}, "weights: found .* in the tensors"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "rope_parameters: found rope_type dynamic, expected one of"),
        ({"rope_scaling": {"type": "longrope"}}, "rope_scaling: found rope_type longrope"),
        ({"num_key_value_heads": 3}, "expected a divisor of 4"),
        ({"head_dim": 31}, "weights: found .* in the tensors"),
        ({"hidden_size": "24"}, "hidden_size: found '24', expected a whole number"),
        ({"vocab_size": 2 * 10**8}, "vocab_size: found 200000000, expected a whole number"),
        ({"vocab_size": 10**7}, "weights: found"),
        ({"num_hidden_layers": 5}, "layer 4: input_layernorm.weight: found no such tensor"),
        ({"tie_word_embeddings": False}, "lm_head.weight: found no such tensor"),
        ({"rms_norm_eps": "x"}, "config: "),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention: found true, expected false"),
        ({"eos_token_id": 50}, "end of text: found 50"),
    ],
)
def test_a_folder_of_something_else_is_refused_by_name(tmp_path, changed, said):
    folder = write(tmp_path / "model", **changed)
    with pytest.raises(UsageError, match=said) as error:
        assert open_model(str(folder)).ends is not None
    assert len(str(error.value)) < 1500


def tensors_of(folder):
    return load_file(folder / "model.safetensors")


def test_a_tensor_of_another_shape_or_name_is_found_when_the_model_is_opened(tmp_path):
    folder, name = write(tmp_path / "model"), "model.layers.{}.mlp.up_proj.weight"
    tensors = tensors_of(folder)
    save_file(tensors | {name.format(1): torch.zeros(64, 96)}, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"layers\.1\.mlp\.up_proj\.weight: found the shape \(64, 96\)"):
        open_model(str(folder))
    for layer in range(4):
        tensors[f"model.layers.{layer}.mlp.other.weight"] = tensors.pop(name.format(layer))
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"layers\.0\.mlp\.up_proj\.weight: found no such tensor"):
        open_model(str(folder))


def test_a_tensor_that_the_engine_does_not_compute_is_refused(tmp_path):
    folder = write(tmp_path / "model")
    extra = {f"model.layers.{layer}.self_attn.q_norm.weight": torch.ones(1) for layer in range(4)}
    save_file(tensors_of(folder) | extra, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"q_norm\.weight: found a tensor that the engine does not compute"):
        open_model(str(folder))


def test_without_transformers_the_command_that_installs_it_is_named(tmp_path, monkeypatch):
    folder = write(tmp_path / "model")
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"no package transformers, gguf, expected it to be installed: .*\[lm\]"):
        open_model(str(folder))


def test_code_and_memory_that_a_config_asks_for_are_not_given(tmp_path):
    more = {"auto_map": {"AutoModelForCausalLM": "evil.Model"}, "_attn_implementation": "eager", "pad_token_id": 10**9}
    model = open_model(str(write(tmp_path / "model", **more)))
    assert not hasattr(model.config, "auto_map")
    assert len(through([model.share(0, 4)], [TOKENS])) == len(TOKENS)


def test_a_tensor_outside_its_file_is_refused_before_memory_is_taken(tmp_path):
    folder = write(tmp_path / "model", vocab_size=10**7)
    huge = {"dtype": "F32", "shape": [10**7, 64], "data_offsets": [0, 4 * 64 * 10**7]}
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
    folder = write(tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFileError, match="symbolic link, which is not followed"):
        open_model(str(folder))


def test_a_folder_without_weights_or_without_a_model_is_refused(tmp_path):
    folder = write(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match="weights: found none, expected the model's"):
        open_model(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(ModelFileError, match=r"neither config.json nor a run's config.yaml"):
        open_model(str(folder))
    with pytest.raises(UsageError, match=r"no such file and no such name, expected a name \(smollm2\)"):
        open_model(str(tmp_path / "none"))


def with_texts(folder, settings, generation=None):
    """Write a folder with a tokenizer of 421 tokens, for an embedding of 430 rows."""
    write(folder, sizes={"vocab_size": 430})
    (folder / "tokenizer.json").write_text(byte_level())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def test_a_tokenizer_and_a_chat_template_are_read(tmp_path):
    settings = {"chat_template": "{{ bos_token }}" + CHATML, "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    model = open_model(str(with_texts(tmp_path / "model", settings)))
    marks = model.tokenizer.marks
    tokens = model.chat.render([{"role": "user", "content": "the dog"}])
    assert tokens[:2] == [marks["<s>"], marks["<|im_start|>"]]
    assert model.tokenizer.encode("the dog") == library_of(byte_level()).encode("the dog", add_special_tokens=False).ids
    assert model.tokenizer.prompt("the dog")[0] == marks["<s>"]
    assert model.tokenizer.decode([429]) == ""  # the embedding has rows without a token
    (model.path / "chat_template.jinja").write_text("{{ eos_token }}")
    assert open_model(str(model.path)).chat.render([{"role": "user", "content": "x"}]) == [marks["</s>"]]
    (model.path / "chat_template.jinja").write_text("{{ messages")
    with pytest.raises(ModelFileError, match="chat template: unexpected end of template"):
        _ = open_model(str(model.path)).chat


def test_of_several_templates_the_default_is_taken(tmp_path):
    several = [{"name": "tool_use", "template": "{{ x.y }}"}, {"name": "default", "template": "a"}]
    model = open_model(str(with_texts(tmp_path / "model", {"chat_template": several})))
    assert model.chat.render([{"role": "user", "content": "x"}]) == model.tokenizer.encode("a")


@pytest.mark.parametrize(
    ("settings", "generation", "more"),
    [
        ({}, None, []),
        ({"eos_token": "</s>"}, None, ["</s>"]),
        ({"eos_token": {"content": "</s>"}}, {"eos_token_id": None}, ["</s>"]),
        ({"eos_token": "no mark"}, {"eos_token_id": [8, 9]}, [8, 9]),
        ({}, {"eos_token_id": 8}, [8]),
    ],
)
def test_an_answer_ends_with_the_tokens_of_all_its_files_and_with_well_known_marks(
    tmp_path, settings, generation, more
):
    model = open_model(str(with_texts(tmp_path / "model", settings, generation)))
    marks = model.tokenizer.marks
    known = {marks[name] for name in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>")}
    assert model.ends == known | {7} | {marks.get(one, one) for one in more}


def test_an_end_that_is_no_token_is_refused(tmp_path):
    model = open_model(str(with_texts(tmp_path / "model", {}, {"eos_token_id": [8, 430]})))
    with pytest.raises(ModelFileError, match="end of text: found 430, expected a token's id"):
        _ = model.ends


def test_the_end_of_a_part_of_an_answer_does_not_end_it(tmp_path):
    folder = with_texts(tmp_path / "model", {})
    (folder / "tokenizer.json").write_text(byte_level().replace("<|eot_id|>", "<|return|>"))
    model = open_model(str(folder))
    assert model.tokenizer.marks["<|return|>"] in model.ends
    assert model.tokenizer.marks["<|end|>"] not in model.ends


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer.json", "{}", "Model missing"),
        ("tokenizer.json", "[" * 10**6, "invalid type: sequence"),
        (
            "tokenizer.json",
            byte_level().replace('"ByteLevel"', '"Ground"'),
            "PreTokenizerUntagged at line 1 column 2298, among Ground, TemplateProcessing",
        ),
        (
            "tokenizer.json",
            byte_level().replace('"BPE"', '"WordPiece"'),
            "among ByteLevel, TemplateProcessing, ByteLevel, WordPiece",
        ),
        ("tokenizer.json", byte_level().replace('"!":0', '"!":1000'), "vocab: found the token 1,000,"),
        ("tokenizer.json", "x" * (64 * 2**20 + 1), "more than 67,108,864"),
        ("tokenizer.model", "", "found only tokenizer.model, expected it: transformers writes it, with AutoTokenizer"),
    ],
)
def test_another_tokenizer_is_refused_by_name(tmp_path, name, content, said):
    folder = write(tmp_path / "model", sizes={"vocab_size": 430})
    (folder / name).write_text(content)
    with pytest.raises(ModelFileError, match=r"model(/tokenizer\.json)?: ") as error:
        _ = open_model(str(folder)).tokenizer
    assert said in str(error.value)
    assert len(str(error.value)) < 2000
