"""GGUF files: written here with the package, malformed, and the real model where its package is installed."""

from __future__ import annotations

from dataclasses import replace

import gguf
import pytest
import torch

from simcluster.errors import UsageError
from simcluster.lm.files.error import ModelFileError
from simcluster.lm.files.pieces import read_piece
from simcluster.lm.models import model_file
from simcluster.lm.models.decoder import SequencePart
from simcluster.lm.models.open import open_model
from tests.lm.models import tiny


def smollm2():
    try:
        return open_model("smollm2")
    except UsageError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_the_capital_of_france_is_paris():
    model = smollm2()
    prompt = torch.tensor(model.tokenizer.encode("The capital of France is"))
    # A stage of 10 layers and one of 20.
    stream = prompt
    for share in (model.share(0, 10), model.share(10, 30)):
        (stream,) = share.forward([SequencePart(share.cache(16), stream)])
    assert model.tokenizer.decode([int(stream[-1].argmax())]) == " Paris"


def test_a_file_that_is_no_gguf_is_refused_by_name(tmp_path):
    path = tmp_path / "model.gguf"
    for content in (b"not a model at all, but long enough", b"GGUF" + b"\xff" * 60, b"GGUF\x03\0\0\0" + b"\xff" * 16):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.gguf: file: found .*, expected a GGUF file"):
            open_model(str(path))


A = tiny.LLAMA
NAMES = {"embedding": "token_embd", "norm": "output_norm", "output": "output"} | {
    "norm_attention": "attn_norm", "query": "attn_q", "key": "attn_k", "value": "attn_v", "merge": "attn_output",
    "norm_feed": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip


def write(path, alter=lambda writer: None, without=()):
    """Write the tiny Llama as the package gguf writes a model, with 50 tokens of which 2 are marks."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(A.layers)
    writer.add_embedding_length(A.width)
    writer.add_head_count(A.heads)
    writer.add_head_count_kv(A.kv_heads)
    writer.add_feed_forward_length(A.feed_forward)
    writer.add_context_length(A.context)
    writer.add_layer_norm_rms_eps(A.epsilon)
    alter(writer)
    for (name, layer), tensor in tiny.tensors(A).items():
        key = f"{'' if layer is None else f'blk.{layer}.'}{NAMES.get(name, name)}.weight"
        if name != "position" and key not in without:
            writer.add_tensor(key, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_model_that_the_package_wrote_has_its_architecture_and_weights(tmp_path):
    model = open_model(str(write(tmp_path / "tiny.gguf")))
    assert replace(model.architecture, epsilon=A.epsilon) == A
    assert model.architecture.epsilon == pytest.approx(A.epsilon)
    for key, one in tiny.tensors(A).items():
        if key[0] != "position":
            assert torch.equal(model.read(*key, 0, len(one)), one)
            assert torch.equal(model.read(*key, 3, 7), one[3:7])
    assert (model.name, model.tokenizer, model.chat, model.ends) == ("tiny", None, None, frozenset())


def test_a_share_of_layers_reads_the_bytes_of_its_layers_alone(tmp_path, monkeypatch):
    model = open_model(str(write(tmp_path / "tiny.gguf")))
    read = []

    def counted(*given):
        read.append(read_piece(*given))
        return read[-1]

    monkeypatch.setattr(model_file, "read_piece", counted)
    # A layer of the tiny Llama has 24 x 24 query and merge, 8 x 24 key and value, 3 x 40 x 24 feed-forward weights, and
    # two norms of 24: 4,464 numbers of 4 bytes. Embedding and output have 50 x 24 each, the last norm 24. In memory,
    # 40 inner numbers are filled up to 64: 3 x 24 x 24 more.
    layer, table, more = 4 * (2 * 24 * 24 + 2 * 8 * 24 + 3 * 40 * 24 + 2 * 24), 4 * 50 * 24, 4 * 3 * 24 * 24
    for span, expected in (((1, 3), 2 * layer), ((0, 1), layer + table), ((3, 4), layer + table + 4 * 24)):
        read.clear()
        share = model.share(*span)
        assert sum(map(len, read)) == expected
        assert max(map(len, read)) == 4 * max(50 * 24 if span != (1, 3) else 0, 40 * 24)
        assert share.nbytes == expected + (span[1] - span[0]) * more


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("merges", ["b c"], "tokenizer: merges[0]: found 'b c', expected one whose result is a token"),
        ("tokens", ["a"] * 49, "tokenizer.ggml.tokens: found 49, expected 50, as the embedding has rows"),
        ("model", "llama", "tokenizer.ggml.model: found 'llama', expected 'gpt2'"),
        ("pre", "", "tokenizer: no tokenizer.ggml.pre"),
        ("pre", "qwen2", "tokenizer: pre-tokenizer: found 'qwen2', expected one of"),
        ("token_type", [1] * 50 + [3], "tokenizer.ggml.token_type: found 51, expected 50"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_refused_with_the_files_name(tmp_path, key, value, said):
    given = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a"] * 50, "merges": [], "token_type": [1] * 50}

    def alter(writer):
        for name, found in (given | {key: value}).items():
            if found:
                add = writer.add_string if isinstance(found, str) else writer.add_array
                add(f"tokenizer.ggml.{name}", found)

    model = open_model(str(write(tmp_path / "tiny.gguf", alter)))
    with pytest.raises(ModelFileError, match=r"tiny\.gguf: tokenizer") as error:
        _ = model.tokenizer
    assert said in str(error.value)


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


@pytest.mark.parametrize("scaled", ["type", "tensor"])
def test_a_model_with_a_scaled_rotation_is_refused_instead_of_computed_wrongly(tmp_path, scaled):
    def alter(writer):
        if scaled == "type":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        else:
            writer.add_tensor("rope_freqs.weight", torch.ones(4).numpy())

    said = "llama.rope.scaling.type: found 'linear'" if scaled == "type" else "scaled as by rope_type llama3"
    with pytest.raises(UsageError, match=said):
        open_model(str(write(tmp_path / "scaled.gguf", alter)))


def test_a_bias_is_refused_instead_of_left_out(tmp_path):
    def alter(writer):
        for layer in range(A.layers):
            writer.add_tensor(f"blk.{layer}.attn_q.bias", torch.ones(A.width).numpy())

    with pytest.raises(UsageError, match=r"blk\.0\.attn_q\.bias: found a tensor that the engine does not compute"):
        open_model(str(write(tmp_path / "tiny.gguf", alter)))
