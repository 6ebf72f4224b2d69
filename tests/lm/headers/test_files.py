"""A plan's weights are the tensors of the files: their numbers, and their bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.lm.files.gguf import TYPES
from simcluster.lm.headers.read import header_of, shape_of
from tests.lm.headers.public import llama

WIDTH, WORDS, HEADS, KV_HEADS, FFN, LAYERS = 64, 96, 4, 2, 128, 3
Q, KV = WIDTH, WIDTH * KV_HEADS // HEADS
GGUF: dict[str, tuple[str, ...]] = {
    "llama": (), "qwen2": ("bias",), "qwen3": ("qk norm",), "gemma2": ("post norm",), "phi2": ("bias", "ungated"),
    "gpt2": ("bias", "ungated", "positions"), "qwen2moe": ("bias", "experts", "shared"),
    "qwen3moe": ("qk norm", "experts"),
    "deepseek2": ("latent", "experts", "shared", "dense first"), "gpt-oss": ("bias", "experts", "sinks"),
}  # fmt: skip
KINDS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1", "MXFP4"]


def gguf_tensors(ways: tuple[str, ...], tied: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of the tensors of a model that differs from Llama in *ways*."""
    yield "token_embd.weight", (WORDS, WIDTH)
    yield "output_norm.weight", (WIDTH,)
    if not tied:
        yield "output.weight", (WORDS, WIDTH)
    if "positions" in ways:
        yield "position_embd.weight", (128, WIDTH)
    for layer in range(LAYERS):
        rows: dict[str, tuple[int, ...]] = {"attn_norm.weight": (WIDTH,), "ffn_norm.weight": (WIDTH,)}
        if "latent" in ways:
            rows |= {"attn_q.weight": (Q, WIDTH), "attn_kv_a_mqa.weight": (32, WIDTH), "attn_kv_b.weight": (128, 32)}
        else:
            rows |= {"attn_q.weight": (Q, WIDTH), "attn_k.weight": (KV, WIDTH), "attn_v.weight": (KV, WIDTH)}
        rows["attn_output.weight"] = (WIDTH, Q)
        if "bias" in ways:
            rows |= {"attn_q.bias": (Q,), "attn_k.bias": (KV,), "attn_v.bias": (KV,)}
        if "qk norm" in ways:
            rows |= {"attn_q_norm.weight": (16,), "attn_k_norm.weight": (16,)}
        if "post norm" in ways:
            rows |= {"post_attention_norm.weight": (WIDTH,), "post_ffw_norm.weight": (WIDTH,)}
        if "sinks" in ways:
            rows["attn_sinks.weight"] = (HEADS,)
        names = ("up", "down") if "ungated" in ways else ("gate", "up", "down")
        if "experts" in ways and not ("dense first" in ways and layer == 0):
            rows["ffn_gate_inp.weight"] = (4, WIDTH)
            rows |= {f"ffn_{name}_exps.weight": (4, *_ffn(name, 96)) for name in names}
            if "shared" in ways:
                rows |= {f"ffn_{name}_shexp.weight": _ffn(name, 32) for name in names}
        else:
            rows |= {f"ffn_{name}.weight": _ffn(name, FFN) for name in names}
        yield from ((f"blk.{layer}.{name}", shape) for name, shape in rows.items())


def _ffn(name: str, width: int) -> tuple[int, int]:
    return (WIDTH, width) if name == "down" else (width, WIDTH)


def written(path: Path, kind: str, tensors: Mapping[str, tuple[int, ...]], types: Iterator[str], **more: int) -> int:
    """Write a GGUF file with *tensors*, matrices of *types*; return the bytes of all."""
    writer, total = gguf.GGUFWriter(path, kind), 0
    for key, value in {
        "block_count": LAYERS, "context_length": 1024, "embedding_length": WIDTH, "feed_forward_length": FFN,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "expert_count": 4, "expert_used_count": 2,
    }.items() | more.items():  # fmt: skip
        writer.add_uint32(f"{kind}.{key}", value)
    for name, shape in tensors.items():
        one = GGMLQuantizationType[next(types) if len(shape) > 1 else "F32"]
        block, size = GGML_QUANT_SIZES[one]
        raw = np.zeros((*shape[:-1], shape[-1] // block * size), np.uint8)
        total += raw.nbytes
        writer.add_tensor(name, raw, raw_dtype=one)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return total


def test_types_have_the_blocks_of_the_package() -> None:
    known = {kind.value: (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    assert [kind for kind, found in TYPES.items() if known.get(kind, found) != found] == []


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(GGUF)), st.booleans(), st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
def test_the_weights_of_a_gguf_file_are_its_tensors(
    tmp_path_factory: Any, kind: str, tied: bool, types: list[str]
) -> None:
    path = tmp_path_factory.mktemp("law") / "model.gguf"
    tensors = dict(gguf_tensors(GGUF[kind], tied))
    more = {"attention.kv_lora_rank": 16, "rope.dimension_count": 16} if "latent" in GGUF[kind] else {}
    endless = (types[n % len(types)] for n in range(1000))
    nbytes = written(path, kind, tensors, endless, **more)
    shape = shape_of(str(path))
    assert shape.weights == sum(int(np.prod(one)) for one in tensors.values())
    assert shape.whole_bytes == pytest.approx(nbytes, rel=1e-9)
    assert shape.tied == tied
    routed = sum(int(np.prod(one)) for name, one in tensors.items() if "_exps" in name)
    assert (shape.parts.routed, shape.parts.active / shape.parts.experts) == (routed, 0.5 if routed else 1)


def hugging_face_tensors(experts: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (WORDS, WIDTH)
    yield "model.norm.weight", (WIDTH,)
    yield "lm_head.weight", (WORDS, WIDTH)
    for layer in range(LAYERS):
        rows: dict[str, tuple[int, ...]] = {f"self_attn.{name}_proj.weight": (Q, WIDTH) for name in "qo"}
        rows |= {f"self_attn.{name}_proj.weight": (KV, WIDTH) for name in "kv"}
        rows |= dict.fromkeys(("input_layernorm.weight", "post_attention_layernorm.weight"), (WIDTH,))
        if experts:
            rows["block_sparse_moe.gate.weight"] = (4, WIDTH)
            for expert in range(4):
                rows |= {
                    f"block_sparse_moe.experts.{expert}.w{i}.weight": _ffn("down" if i == 2 else "", FFN)
                    for i in (1, 2, 3)
                }
        else:
            rows |= {f"mlp.{name}_proj.weight": _ffn(name, FFN) for name in ("gate", "up", "down")}
        yield from ((f"model.layers.{layer}.{name}", shape) for name, shape in rows.items())


def saved(path: Path, tensors: Mapping[str, tuple[int, ...]], types: Mapping[str, str]) -> int:
    """Write a safetensors file with tensors of *types*, by the end of their names, and else F16."""
    sizes, entries, at = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I32": 4}, {}, 0
    for name, shape in tensors.items():
        dtype = next((found for end, found in types.items() if name.endswith(end)), "F16")
        nbytes = int(np.prod(shape)) * sizes[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + nbytes]}
        at += nbytes
    head = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(at))
    return at


def folder_of(folder: Path, experts: bool, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    kind = {"num_local_experts": 4, "num_experts_per_tok": 2} if experts else {}
    found = llama("mixtral" if experts else "llama", LAYERS, WIDTH, HEADS, KV_HEADS, FFN, WORDS, **kind, **more)
    (folder / "config.json").write_text(json.dumps(found))
    return folder


@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("types", [{}, {"norm.weight": "F32", "proj.weight": "F8_E4M3"}])
def test_the_weights_of_a_folder_are_those_of_all_its_files(
    experts: bool, types: dict[str, str], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "model", experts)
    tensors = list(hugging_face_tensors(experts))
    names = [f"model-{n:05}-of-00003.safetensors" for n in (1, 2, 3)]
    nbytes = sum(saved(folder / name, dict(tensors[n::3]), types) for n, name in enumerate(names))
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {key: names[n % 3] for n, (key, _) in enumerate(tensors)}})
    )
    (folder / "consolidated.safetensors").write_bytes(b"no part of the index")
    for model in (folder, folder / names[1], folder / "model.safetensors.index.json"):
        shape = shape_of(str(model))
        assert shape.weights == sum(int(np.prod(one)) for _, one in tensors)
        assert shape.whole_bytes == pytest.approx(nbytes, rel=1e-9)
    (folder / names[2]).unlink()
    for model in (folder, folder / names[0]):
        with pytest.raises(UsageError, match="no model-00003-of-00003"):
            shape_of(str(model))


def test_packed_weights_have_the_bytes_of_the_tensors_and_the_count_of_the_config(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", False, quantization_config={"quant_method": "gptq", "bits": 4})
    tensors = {}
    for name, shape in hugging_face_tensors(False):
        if "proj" in name:
            stem = name.removesuffix("weight")
            tensors[f"{stem}qweight"] = (shape[1] // 8, shape[0])
            tensors[f"{stem}scales"] = (1, shape[0])
        else:
            tensors[name] = shape
    nbytes = saved(folder / "model.safetensors", tensors, {"qweight": "I32"})
    shape = shape_of(str(folder))
    assert shape.weights == sum(int(np.prod(one)) for _, one in hugging_face_tensors(False))
    assert shape.whole_bytes == pytest.approx(nbytes, rel=1e-9)
    assert shape.weight_bytes < 0.6 < shape.table_bytes == 2.0  # type: ignore[operator]


def test_files_of_a_split_gguf_are_summed_and_a_missing_one_is_named(tmp_path: Path) -> None:
    tensors = list(gguf_tensors((), False))
    for n in (1, 2):
        path = tmp_path / f"model-{n:05}-of-00002.gguf"
        written(path, "llama", dict(tensors[n - 1 :: 2]), iter(["F16"] * 99))
    for n in (1, 2):
        shape = shape_of(str(tmp_path / f"model-{n:05}-of-00002.gguf"))
        assert shape.weights == sum(int(np.prod(one)) for _, one in tensors)
    path.unlink()
    with pytest.raises(UsageError, match=r"no model-00002-of-00002\.gguf next to it, expected all 2 files"):
        shape_of(str(tmp_path / "model-00001-of-00002.gguf"))


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("bert", {}, "general.architecture: found 'bert', expected a decoder"),
        ("mamba", {}, "general.architecture: found 'mamba'"),
        ("llama", {"blk.1.ssm_in.weight": (8, 8)}, "blk.1.ssm_in.weight: found a tensor of no known decoder"),
        ("llama", {"blk.1.ffn_up.weight": None}, "layer 1: ffn_up.weight: found no such tensor"),
        ("llama", {"token_embd.weight": (WORDS, 32)}, "token_embd.weight: found the shape (96, 32)"),
        ("llama", {"v.patch_embd.weight": (8, 8)}, "v.patch_embd.weight: found a tensor of no known decoder"),
    ],
)
def test_a_gguf_file_of_something_else_is_refused_by_name(kind: str, change: Any, said: str, tmp_path: Path) -> None:
    tensors = {name: shape for name, shape in (dict(gguf_tensors((), True)) | change).items() if shape is not None}
    written(tmp_path / "model.gguf", kind, tensors, iter(["F16"] * 99))
    with pytest.raises(UsageError) as error:
        shape_of(str(tmp_path / "model.gguf"))
    assert said in str(error.value)


def test_a_file_that_is_cut_short_or_contradicts_its_config_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", False)
    tensors = dict(hugging_face_tensors(False))
    saved(folder / "model.safetensors", tensors, {})
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-1])
    with pytest.raises(UsageError, match=r"found .* bytes, and a tensor at .*, expected a whole tensor"):
        shape_of(str(folder))
    (folder / "model.safetensors").write_bytes(content)
    folder_of(folder, False, head_dim=32)
    with pytest.raises(UsageError, match=r"weights: found 1\d\d,\d\d\d in the tensors, expected .* by config.json"):
        shape_of(str(folder))
    folder_of(folder, False)
    saved(folder / "model.safetensors", {name: one for name, one in tensors.items() if "2.mlp.up" not in name}, {})
    with pytest.raises(UsageError, match=r"layer 2: mlp.up_proj.weight: found no such tensor"):
        shape_of(str(folder))


@pytest.mark.parametrize("model", ["x" * 5000, "x\0y", "/etc", "smolm2", "README.md"])
def test_a_name_that_leads_nowhere_is_refused_in_short(model: str) -> None:
    with pytest.raises(UsageError) as error:
        header_of(model)
    assert len(str(error.value)) < 300


def test_the_texts_of_a_file_cannot_control_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2Jtiny.gguf"
    written(path, "llama", dict(gguf_tensors((), True)), iter(["F16"] * 99))
    assert shape_of(str(path)).name == "[2Jtiny"
    for kind, more in (("\x1b[2J", {}), ("llama", {"\x1b[2J": (8, 8)})):
        written(tmp_path / "a.gguf", kind, dict(gguf_tensors((), True)) | more, iter(["F16"] * 99))
        with pytest.raises(UsageError) as error:
            shape_of(str(tmp_path / "a.gguf"))
        assert "\x1b" not in str(error.value)


WHOLE = dict(gguf_tensors((), True))


@pytest.mark.slow
@given(st.integers(0, 1500), st.binary(min_size=1, max_size=8))
def test_a_damaged_file_is_a_shape_or_an_error(tmp_path_factory: Any, at: int, damage: bytes) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    written(folder / "whole.gguf", "llama", WHOLE, iter(["F16"] * 99))
    whole = (folder / "whole.gguf").read_bytes()
    for content in (whole[:at] + damage + whole[at + len(damage) :], whole[:at]):
        (folder / "tiny.gguf").write_bytes(content)
        try:
            layers = shape_of(str(folder / "tiny.gguf")).layers
        except UsageError:
            continue
        assert layers >= 1
