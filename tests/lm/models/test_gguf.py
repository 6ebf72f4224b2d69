"""GGUF files: written here with the package, malformed, and the real model where its package is installed."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from simcluster.errors import UsageError
from simcluster.lm.files.error import ModelFileError
from simcluster.lm.files.gguf import TYPES, read_header
from simcluster.lm.files.pieces import read_piece
from simcluster.lm.models import model_file
from simcluster.lm.models.numbers import in_f32
from simcluster.lm.models.open import open_model
from simcluster.lm.models.runnable import READABLE
from simcluster.lm.serving.parts import file_of
from tests.support.gguf_models import write_gguf
from tests.support.tiny_models import model_of


def test_a_file_that_is_no_gguf_is_refused_by_name(tmp_path):
    path = tmp_path / "model.gguf"
    for content in (b"not a model at all, but long enough", b"GGUF" + b"\xff" * 60, b"GGUF\x03\0\0\0" + b"\xff" * 16):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.gguf: file: found .*, expected a GGUF file"):
            open_model(str(path))


def write(path, alter=None, without=(), **changed):
    """Write a tiny Llama with a vocabulary of 50."""
    return write_gguf(path, model_of("llama", vocab_size=50, **changed), alter=alter, without=without)


def test_the_settings_and_weights_are_those_that_were_written(tmp_path):
    model = open_model(str(write(tmp_path / "tiny.gguf")))
    config = model.config
    assert (config.num_hidden_layers, config.hidden_size, config.head_dim, config.vocab_size) == (4, 64, 32, 50)
    assert (config.rms_norm_eps, config.tie_word_embeddings) == (pytest.approx(1e-6), False)
    table = dict(model_of("llama", vocab_size=50).named_parameters())["model.embed_tokens.weight"]
    assert torch.equal(model.read("token_embd.weight", 0, 50), table)
    assert torch.equal(model.read("token_embd.weight", 3, 7), table[3:7])
    assert (model.name, model.tokenizer, model.chat, model.ends) == ("tiny", None, None, frozenset())


def test_a_share_of_layers_reads_the_bytes_of_its_layers_alone(tmp_path, monkeypatch):
    model = open_model(str(write(tmp_path / "tiny.gguf", rope_parameters={"rope_type": "default", "rope_theta": 1e4})))
    read = []

    def counted(*given):
        read.append(read_piece(*given))
        return read[-1]

    monkeypatch.setattr(model_file, "read_piece", counted)
    # A layer has 128 x 64 query and merge, 64 x 64 key and value, 3 x 96 x 64 MLP weights, and two norms of 64.
    # Embedding and output have 50 x 64 each, the last norm 64; all have 4 bytes.
    layer, table = 4 * (2 * 128 * 64 + 2 * 64 * 64 + 3 * 96 * 64 + 2 * 64), 4 * 50 * 64
    for span, expected in (((1, 3), 2 * layer), ((0, 1), layer + table), ((3, 4), layer + table + 4 * 64)):
        read.clear()
        share = model.share(*span)
        assert sum(map(len, read)) == expected
        assert share.nbytes == expected


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("merges", ["b c"], "tokenizer: merges[0]: found ('b', 'c'), expected one whose result is a token"),
        ("merges", ["t1"], "tokenizer: merges[0]: found ('t', 't1'), expected one whose result is a token"),
        ("tokens", ["a"] * 49, "tokenizer.ggml.tokens: found 49, expected 50, as the embedding has rows"),
        ("tokens", ["a"] * 50, "tokenizer.ggml.tokens: found 49 that occur twice"),
        ("model", "bert", "tokenizer.ggml.model: found 'bert' with the rule 'gpt-2', expected gpt2 with one of"),
        ("model", "llama", "tokenizer: no scores"),
        ("pre", "", "found 'gpt2' with the rule None, expected gpt2 with one of gpt-2, phi-2"),
        ("pre", "default", "found 'gpt2' with the rule 'default', expected"),
        ("token_type", [1] * 50 + [3], "tokenizer.ggml.token_type: found 51, expected 50"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_refused_with_the_files_name(tmp_path, key, value, said):
    model = open_model(str(write(tmp_path / "tiny.gguf", with_tokenizer({key: value}))))
    with pytest.raises(ModelFileError, match=r"tiny\.gguf: tokenizer") as error:
        _ = model.tokenizer
    assert said in str(error.value)


def with_tokenizer(more):
    """Return a function that adds a tokenizer of 50 tokens, the last two of which are marks."""
    tokens = [f"t{place}" for place in range(48)] + ["<s>", "<|im_end|>"]
    given = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": [], "token_type": [1] * 48 + [3, 3]}

    def alter(writer):
        for name, found in (given | more).items():
            if isinstance(found, int):
                writer.add_uint32(f"tokenizer.ggml.{name}", found)
            elif found:
                add = writer.add_string if isinstance(found, str) else writer.add_array
                add(name if name.startswith("tokenizer") else f"tokenizer.ggml.{name}", found)

    return alter


def test_marks_templates_and_ends_are_read(tmp_path):
    more = {
        "tokenizer.chat_template": "{{ bos_token }}{{ eos_token }}",
        "bos_token_id": 48,
        "eos_token_id": 3,
        "eot_token_id": 4,
    }
    model = open_model(str(write(tmp_path / "tiny.gguf", with_tokenizer(more))))
    assert model.tokenizer.marks == {"<s>": 48, "<|im_end|>": 49}
    assert model.ends == {3, 4, 49}
    assert model.chat.render([{"role": "user", "content": "x"}]) == [48]  # the end is no mark here, so it has no name


def test_a_template_that_is_too_long_is_refused_instead_of_left_out(tmp_path):
    more = {"tokenizer.chat_template": "x" * 65_537}
    model = open_model(str(write(tmp_path / "tiny.gguf", with_tokenizer(more))))
    with pytest.raises(ModelFileError, match=r"tiny\.gguf: chat template: found more than 65,536 characters"):
        _ = model.chat


def test_a_file_without_a_tensor_or_cut_short_is_refused_by_name_when_it_is_opened(tmp_path):
    with pytest.raises(ModelFileError, match=r"tiny\.gguf: layer 2: ffn_up\.weight: found no such tensor"):
        open_model(str(write(tmp_path / "tiny.gguf", without=["blk.2.ffn_up.weight"])))
    path = write(tmp_path / "short.gguf")
    with pytest.raises(ModelFileError, match=r"short\.gguf: weights: layers: found \[3, 9\), expected a range"):
        open_model(str(path)).share(3, 9)
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    with pytest.raises(ModelFileError, match=r"short\.gguf: .*weight: found .* bytes, and a tensor at"):
        open_model(str(path))


SETTINGS = {
    "rope.scaling.type": ("longrope", "none, linear or yarn"),
    "attention.scale": (0.5, "no such setting"),
    "attention.causal": (False, "true"),
    "rope.scaling.yarn_log_multiplier": (0.1, "no such setting"),
    "attention.max_alibi_bias": (8.0, "no such setting"),
    "attention.sliding_window_pattern": (4, "6: a layer without a window after five with one"),
}


@pytest.mark.parametrize("key", SETTINGS)
def test_a_setting_that_changes_the_arithmetic_is_refused_instead_of_left_out(tmp_path, key):
    value, expected = SETTINGS[key]

    def alter(writer):
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](f"llama.{key}", value)

    with pytest.raises(UsageError, match=rf"llama\.{key}: found .*, expected {expected}"):
        open_model(str(write(tmp_path / "scaled.gguf", alter)))


def test_half_a_rotated_head_is_refused(tmp_path):
    def alter(writer):
        writer.kv_data[0].pop("llama.rope.dimension_count")
        writer.add_rope_dimension_count(16)

    with pytest.raises(UsageError, match=r"llama\.rope\.dimension_count: found 16, expected 32, a head's width"):
        open_model(str(write(tmp_path / "half.gguf", alter)))


def test_a_factor_without_a_type_scales_linearly_as_in_llama_cpp(tmp_path):
    model = open_model(
        str(write(tmp_path / "a.gguf", lambda writer: writer.add_float32("llama.rope.scale_linear", 4.0)))
    )
    assert (model.config.rope_parameters["rope_type"], model.config.rope_parameters["factor"]) == ("linear", 4.0)


def test_a_tensor_that_the_engine_does_not_compute_is_refused_instead_of_left_out(tmp_path):
    def alter(writer):
        for layer in range(4):
            writer.add_tensor(f"blk.{layer}.attn_q_norm.weight", torch.ones(32).numpy())

    with pytest.raises(UsageError, match=r"blk\.0\.attn_q_norm\.weight: found a tensor that the engine does not comp"):
        open_model(str(write(tmp_path / "tiny.gguf", alter)))


BLOCKS = (
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ2_XXS",
    "IQ3_S",
    "IQ4_XS",
    "IQ4_NL",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "MXFP4",
)


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_of_every_kind_have_the_numbers_that_the_package_gives_them(tmp_path, kind):
    # The package quantises few kinds, so the blocks are random bytes. A row has 256 numbers.
    number = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[number]
    raw = np.random.default_rng(3).integers(0, 60, (40, 256 // block * size), dtype=np.uint8)
    path = tmp_path / "blocks.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("one", raw, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with path.open("rb") as file:
        stored = read_header(file).tensors["one"]
        rows = read_piece(file, stored.offset, stored.nbytes, 7 * raw.shape[1], 19 * raw.shape[1])
    assert stored.shape == (40, 256)
    found = in_f32(rows, stored.type_name).reshape(12, 256)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = gguf.quants.dequantize(raw, number)[7:19]
    np.testing.assert_array_equal(found, expected)


def test_the_types_that_the_engine_reads_are_those_of_the_format():
    assert {name for name, *_ in TYPES.values()} > READABLE


def test_a_process_opens_a_file_once_and_again_after_it_has_changed(tmp_path):
    path = write(tmp_path / "tiny.gguf")
    first = file_of(str(path))
    assert file_of(str(path)) is first
    before = first.shape.layers
    write(path, num_hidden_layers=before + 1)  # another size, so that the time of the change does not matter
    assert file_of(str(path)).shape.layers == before + 1
