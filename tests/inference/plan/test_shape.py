"""Shapes: the weights and bytes of known models, and headers of files, good and hostile."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.inference.plan.header import shape_of
from simcluster.inference.plan.shape import PRESETS, Shape

CONFIG = {
    "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 16, "vocab_size": 32, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
TINY = Shape("tiny", 2, 8, 4, 2, 2, 16, 32, True, 2.0)


def test_the_presets_have_the_weights_of_the_models() -> None:
    # The numbers of parameters on the models' cards: 134.5 million, 6.738, 8.030 and 70.55 billion.
    assert {name: shape.weights for name, shape in PRESETS.items()} == {
        "smollm2": 134_515_008,
        "7b": 6_738_415_616,
        "8b": 8_030_261_248,
        "70b": 70_553_706_496,
    }


def test_a_layer_weighs_caches_and_computes_by_its_formulas() -> None:
    # query and output 8 x 8 each, key and value 8 x 4 each, gate, up and down 8 x 16 each: 64 + 64 + 32 + 32 + 384.
    assert TINY.layer_matrices == 576
    assert TINY.layer_bytes == (576 + 2 * 8) * 2
    # Keys and values of 2 KV heads of size 2, 4 bytes each: 32 bytes per layer and token.
    assert TINY.cache_bytes(2, 10) == 2 * 32 * 10
    # 3 requests, 5 new tokens each after 7: 2 x 576 FLOPs a token; pairs 5 x 7 + 1 + 2 + 3 + 4 + 5 = 50, each
    # 4 x (4 heads of size 2) FLOPs. The weights are read once, 12 cached tokens for every request.
    cost = TINY.layer_cost(3, 5, 7)
    assert cost.flops == 3 * (5 * 2 * 576 + 50 * 4 * 8)
    assert cost.memory_bytes == 1184 + 3 * 12 * 32
    half = TINY.layer_cost(3, 5, 7, share=0.5)
    assert (half.flops, half.memory_bytes) == (cost.flops / 2, cost.memory_bytes / 2)


@pytest.mark.parametrize("tied", [True, False])
def test_weights_are_conserved_however_a_model_is_cut(tied: bool) -> None:
    shape = replace(TINY, tied=tied)
    whole = shape.layers * shape.layer_bytes + shape.ends_bytes(True, True)
    assert whole == shape.weights * shape.weight_bytes
    cut = shape.layers * shape.layer_bytes + shape.ends_bytes(True, False) + shape.ends_bytes(False, True)
    # Tied, both ends hold the table of 32 x 8 weights of 2 bytes.
    assert cut - whole == (32 * 8 * 2 if tied else 0)


def config(folder: Path, **changed: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIG | changed))
    return path


def safetensors(path: Path, entries: Any, size: int | None = None) -> Path:
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text) if size is None else size) + text)
    return path


def text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def gguf(tied: bool = True, name: str = "tiny", kind: str = "llama") -> bytes:
    """Return a GGUF file of the tiny model, with 2 bytes per weight, a list of tokens and its tensors."""
    numbers = {"block_count": 2, "embedding_length": 8, "attention.head_count": 4, "attention.head_count_kv": 2,
               "feed_forward_length": 16}  # fmt: skip
    entries = [text("general.architecture") + struct.pack("<I", 8) + text(kind)]
    entries += [text(f"llama.{key}") + struct.pack("<II", 4, value) for key, value in numbers.items()]
    entries += [text("general.name") + struct.pack("<I", 8) + text(name)]
    entries += [text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")]
    entries += [text("scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<ff", 1, 2)]
    tensors = {"token_embd.weight": (8, 32), "blk.0.attn_q.weight": (8, 8)} | (
        {} if tied else {"output.weight": (8, 32)}
    )
    infos = [text(name) + struct.pack("<I", 2) + struct.pack("<QQIQ", *dims, 1, 0) for name, dims in tensors.items()]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    head += b"".join(entries + infos)
    return head + bytes(-len(head) % 32) + bytes(2 * sum(a * b for a, b in tensors.values()))


def test_a_shape_is_read_from_each_kind_of_header(tmp_path: Path) -> None:
    path = config(tmp_path / "tiny")
    assert shape_of(str(path)) == TINY
    # 600 bytes for 8 x 75 weights: 1 byte each. The tensors themselves are not in the file: nothing reads them.
    entries = {"__metadata__": {"format": "pt"}, "w": {"dtype": "I8", "shape": [8, 75], "data_offsets": [0, 600]}}
    assert shape_of(str(safetensors(path.with_name("a.safetensors"), entries))) == replace(TINY, weight_bytes=1.0)
    for tied in (True, False):
        file = tmp_path / "tiny.gguf"
        file.write_bytes(gguf(tied))
        assert shape_of(str(file)) == replace(TINY, tied=tied)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"num_hidden_layers": 0}, "found layers 0, expected a whole number from 1 to 1,024"),
        ({"num_hidden_layers": 10**6}, "found layers 1000000"),
        ({"hidden_size": "8", "head_dim": 2}, "found width '8', expected a whole number"),
        ({"vocab_size": 10**8}, "found vocabulary 100000000"),
        ({"num_key_value_heads": 3}, "found 4 heads with 3 KV heads, expected a multiple"),
        ({"num_attention_heads": 0}, "expected the header of a Llama-like model"),
        ({"torch_dtype": "int3"}, "dtype 'int3'"),
    ],
)
def test_numbers_that_no_model_has_are_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        shape_of(str(config(tmp_path / "tiny", **changed)))
    assert said in str(error.value)


def test_hostile_headers_are_refused(tmp_path: Path) -> None:
    path = config(tmp_path / "tiny")
    huge = safetensors(path.with_name("huge.safetensors"), {}, size=2**62)
    deep = path.with_name("deep.json")
    deep.write_text("[" * 100_000)
    long = path.with_name("long.json")
    long.write_text(" " * (2**20 + 1))
    dims = safetensors(path.with_name("dims.safetensors"), {"w": {"shape": [-1, 5], "data_offsets": [0, 5]}})
    none = safetensors(path.with_name("none.safetensors"), {})
    many = path.with_name("many.gguf")
    many.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1))
    for file in (huge, deep, long, dims, none, many):
        with pytest.raises(UsageError, match="Llama-like"):
            shape_of(str(file))


@given(st.integers(0, len(gguf()) - 1), st.binary(min_size=1, max_size=8))
def test_a_damaged_file_is_a_shape_or_an_error(tmp_path_factory: Any, at: int, damage: bytes) -> None:
    whole = gguf()
    file = tmp_path_factory.mktemp("damaged") / "tiny.gguf"
    for content in (whole[:at] + damage + whole[at + len(damage) :], whole[:at]):
        file.write_bytes(content)
        try:
            layers = shape_of(str(file)).layers
        except UsageError:
            continue
        assert layers >= 1


def test_the_texts_of_a_file_cannot_control_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(gguf(name="\x1b[2Jtiny" + 100 * "!"))
    assert shape_of(str(file)).name == ("[2Jtiny" + 100 * "!")[:60]
    file.write_bytes(gguf(kind="\x1b[2J"))
    with pytest.raises(UsageError) as error:
        shape_of(str(file))
    assert "\x1b" not in str(error.value)


def test_an_unknown_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no such file and no such name.*did you mean 'smollm2'"):
        shape_of("smolm2")
