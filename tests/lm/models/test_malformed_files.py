"""Malformed or absurd model files are opened or refused with a typed error, in bounded time and memory."""

from __future__ import annotations

import json
import logging
import struct

import gguf
import pytest

from simcluster.errors import UsageError
from simcluster.lm.files.error import ModelFileError
from simcluster.lm.models.open import open_model
from tests.support.gguf_models import write_gguf
from tests.support.tiny_models import LLAMA3, YARN, model_of, write_folder

KINDS = ("llama", "mixtral", "gpt_oss", "gemma3_text")
ALL = (*KINDS, "smollm3")
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return folders of tiny models by family, with their config.json as a mapping."""
    found = {}
    for kind in ALL:
        folder = write_folder(tmp_path_factory.mktemp(kind) / "model", model_of(kind, tie_word_embeddings=True))
        found[kind] = folder, json.loads((folder / "config.json").read_text())
    return found


@pytest.fixture
def opened(folders):
    """Return a function that opens the model of a family with changed settings, or with a text as its config."""

    def open_changed(kind, changed):
        folder, config = folders[kind]
        text = changed if isinstance(changed, str) else json.dumps(config | changed)
        (folder / "config.json").write_text(text)
        return open_model(str(folder))

    return open_changed


ABSURD = (0, -1, 10**6, 10**9, 2**63, 10**400, 1.5, float("nan"), float("inf"), "8", True, [], {}, [[1]], {"a": {}})
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim", "intermediate_size", "vocab_size")


@pytest.mark.parametrize("kind", KINDS)
def test_an_absurd_size_in_a_config_is_refused_by_name(opened, kind):
    experts = ("num_local_experts",) if kind in ("mixtral", "gpt_oss") else ()
    for key in (*SIZES, *experts):
        for value in ABSURD:
            with pytest.raises(UsageError, match=rf"{key}|weights: found|layer \d+: |num_key_value_heads") as error:
                opened(kind, {key: value})
            assert len(str(error.value)) < 800


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        ("gpt_oss", {"layer_types": ["full_attention"] * 3}, "config: .*layer_types"),
        ("gpt_oss", {"layer_types": ["full_attention"] * 5}, "config: .*layer_types"),
        ("gpt_oss", {"layer_types": ["linear_attention"] * 4}, "layer_types: .*expected layers of full_attention"),
        ("gemma3_text", {"sliding_window": -1}, "sliding_window: found -1, expected a number of tokens"),
        ("mixtral", {"sliding_window": 2**63}, r"sliding_window: found 9223372036854775808"),
        ("gpt_oss", {"swiglu_limit": 1e308}, r"swiglu_limit: found 1e\+308, expected a number above 0, at most 65,504"),
        ("smollm3", {"no_rope_layers": [1, 1, 1]}, "config: .*IndexError"),
        ("smollm3", {"no_rope_layers": [1] * 3, "layer_types": ["full_attention"] * 4}, "config: .*IndexError"),
        ("gemma3_text", {"query_pre_attn_scalar": -1}, "query_pre_attn_scalar: found -1, expected a number above 0"),
        ("llama", {"rope_parameters": [1]}, "config: "),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": "x"}}, "config: "),
        ("llama", {"rope_parameters": LLAMA3 | {"partial_rotary_factor": 10**8}}, "config: found 1,600,000,000 "),
        ("gpt_oss", {"rope_parameters": YARN | {"attention_factor": [1]}}, r"config: .*a scale of rotations"),
        ("gemma3_text", {"rope_parameters": {"full_attention": 1}}, "config: "),
        ("mixtral", {"num_experts": 10**9}, "num_experts: found 1000000000, expected 4, as other keys say"),
        ("llama", DEEP, "file: .*recursion"),
        ("llama", f'{{"model_type": {DEEP}}}', "file: .*recursion"),
        ("llama", '{"model_type": "' + "x" * 10**7 + '"}', "file: found a document of more than 1,048,576 bytes"),
        ("llama", {"model_type": "x" * 10**6}, "model_type: found 'x{50,60}"),
        ("llama", "null", "file: found a NoneType"),
    ],
)  # fmt: skip
def test_a_setting_of_a_wrong_kind_is_refused_by_name(opened, kind, changed, said):
    with pytest.raises(ModelFileError, match=rf"config\.json: {said}") as error:
        opened(kind, changed)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("changed", [{"num_labels": 10**12}, {"auto_map": {"AutoConfig": "a.B"}}])
def test_settings_that_no_layer_reads_take_no_memory_and_change_nothing(opened, changed):
    model = opened("llama", changed)
    assert not hasattr(model.config, "auto_map")
    assert model.config.num_labels == 2


def test_a_warning_about_a_setting_is_not_logged(opened, monkeypatch):
    logged = []
    logger = logging.getLogger("transformers")
    level = logger.level
    handler = logging.Handler()
    handler.emit = logged.append
    monkeypatch.setattr(logger, "handlers", [handler])
    opened("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "a": 1}, "eos_token_id": 999})
    assert (logged, logger.level) == ([], level)


def test_weights_that_may_contain_code_are_refused_with_how_to_convert_them(tmp_path):
    folder = write_folder(tmp_path / "model", model_of("llama"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    for path in (folder, folder / "config.json", folder / "pytorch_model.bin"):
        with pytest.raises(UsageError, match=r"pytorch_model\.bin.*convert other weights, .* to safetensors"):
            open_model(str(path))


def _pairs(key, value):
    """Return a change of a header in JSON: its second tensor has *value* at *key*."""
    return lambda entries: list(entries.values())[1].update({key: value})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_pairs("data_offsets", [0, 256]), "file: found a tensor at .*, before the end of another at"),
        (_pairs("data_offsets", [0, 2**62]), "a tensor of shape"),
        (_pairs("data_offsets", [2**61, 2**61 + 256]), "found .* bytes, and a tensor at"),
        (_pairs("data_offsets", [256, 0]), "bytes, expected those of"),
        (_pairs("data_offsets", {"a": 1}), "a tensor without its shape and offsets"),
        (_pairs("shape", [0]), "bytes, expected those of"),
        (_pairs("shape", [2**61, 2**61]), "bytes, expected those of"),
        (_pairs("shape", [1] * 9), "a tensor without its shape and offsets"),
        (_pairs("dtype", "C128"), "weights of type C128"),
        (lambda entries: entries.clear() or entries.update(a=1), "int"),
    ],
)
def test_a_header_of_safetensors_that_contradicts_itself_is_refused(tmp_path, change, said):
    folder = write_folder(tmp_path / "model", model_of("llama", tie_word_embeddings=True))
    data = (folder / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:begin])
    entries.pop("__metadata__", None)
    change(entries)
    text = json.dumps(entries).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data[begin:])
    with pytest.raises(UsageError, match=rf"model\.safetensors: .*{said}"):
        open_model(str(folder))


@pytest.mark.parametrize(
    ("name", "skip", "changed", "said"),
    [
        ("llama.rope.freq_base", -20, b"llama.context_length", "'llama.context_length' twice"),
        ("blk.1.attn_q.weight", -19, b"blk.0", r"'blk\.0\.attn_q\.weight' twice"),
        ("llama.block_count", 0, struct.pack("<I", 8), "file: found "),
        ("llama.block_count", 0, struct.pack("<I", 6), r"block_count: found \d.*, expected a whole number"),
        ("llama.block_count", 4, struct.pack("<I", 2**32 - 1), "block_count: found 4294967295"),
        ("token_embd.weight", 0, struct.pack("<I", 9), "a tensor of 9 dimensions"),
        ("token_embd.weight", 4, struct.pack("<Q", 0), r"token_embd\.weight: found the shape \(200, 0\)"),
        ("token_embd.weight", 12, struct.pack("<Q", 0), r"token_embd\.weight: found the shape \(0, 64\)"),
        ("token_embd.weight", 4, struct.pack("<Q", 2**63), "expected a whole tensor"),
        ("token_embd.weight", 20, struct.pack("<I", 999), "weights of GGUF's type 999"),
        ("token_embd.weight", 24, struct.pack("<Q", 2**63), "expected a whole tensor"),
        ("blk.1.attn_q.weight", 24, struct.pack("<Q", 0), "a tensor at .*, before the end of another at"),
        ("general.quantised", 4, struct.pack("<I", 0), "general.alignment 0"),
    ],
)
def test_a_header_of_gguf_that_contradicts_itself_is_refused(tmp_path, name, skip, changed, said):
    model = model_of("llama", rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    path = write_gguf(tmp_path / "model.gguf", model, alter=lambda writer: writer.add_uint32("general.quantised", 32))
    # The two names have 17 letters each.
    data = bytearray(path.read_bytes().replace(b"general.quantised", b"general.alignment"))
    name = name.replace("general.quantised", "general.alignment")
    place = data.index(name.encode()) + len(name) + skip
    data[place : place + len(changed)] = changed
    path.write_bytes(data)
    with pytest.raises(UsageError, match=rf"model\.gguf: .*{said}"):
        open_model(str(path))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("attention.sliding_window", "8", "found '8', expected a whole number"),
        ("attention.sliding_window", [[8], [8]], "file: found an array of 2 values of type 9"),
        ("attention.scale", "1", "found '1', expected no such setting"),
        ("nextn_predict_layers", 4, "found 4, expected a whole number from 0 to 3"),
    ],
)
def test_metadata_of_gguf_of_a_wrong_type_is_refused(tmp_path, key, value, said):
    def alter(writer):
        kind = gguf.GGUFValueType.get_type(value)
        writer.add_key_value(f"llama.{key}", value, kind)

    path = write_gguf(tmp_path / "model.gguf", model_of("llama"), alter=alter)
    with pytest.raises(UsageError, match=rf"model\.gguf: .*{said}"):
        open_model(str(path))
