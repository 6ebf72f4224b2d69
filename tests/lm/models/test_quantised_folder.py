"""Quantised folders: the logits are those of transformers' whole model with the numbers that the folder stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from simcluster.errors import UsageError
from simcluster.lm.files.pieces import read_piece
from simcluster.lm.headers.read import shape_of
from simcluster.lm.models import model_file, parameters
from simcluster.lm.models.numbers import E4M3
from simcluster.lm.models.open import open_model
from simcluster.lm.models.packed_tensors import Gptq, Mxfp4, unpacked
from tests.lm.models.test_families import check
from tests.support.quantised_folders import (
    EXPERTS,
    GROUP,
    MATRICES,
    TABLES,
    Packer,
    awq,
    fp8,
    gptq,
    mlx,
    mxfp4,
    write_quantised,
)
from tests.support.tiny_models import model_of, write_folder


def mlx_settings(bits: int, **more: Any) -> dict[str, Any]:
    return {"quantization": {"group_size": GROUP, "bits": bits, **more}}


def method(name: str, **more: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": name, "group_size": GROUP, **more}}


GPTQ = "gptq in 4 bits, with biases"
DOWN = "model.layers.0.mlp.down_proj"
EIGHT = {"group_size": GROUP, "bits": 8}
FOLDERS: dict[str, tuple[str, Packer, dict[str, Any], str]] = {
    "mlx in 4 bits": ("llama", mlx(4), mlx_settings(4, mode="affine"), f"{MATRICES}|{TABLES}"),
    "mlx in 3 bits, with a tied table": ("gemma3_text", mlx(3), mlx_settings(3), f"{MATRICES}|{TABLES}"),
    "mlx in 6 bits, with some in 8": ("phi3", mlx(6, {DOWN: 8}), mlx_settings(6, **{DOWN: EIGHT}), MATRICES),
    "mlx of experts": ("qwen3_moe", mlx(4), mlx_settings(4), MATRICES),
    "mlx of mixtral's experts": ("mixtral", mlx(2), mlx_settings(2), MATRICES),
    GPTQ: ("qwen2", gptq(4), method("gptq", bits=4), MATRICES),
    "gptq in 8 bits, reordered": ("llama", gptq(8, shuffled=True), method("gptq", bits=8, desc_act=True), MATRICES),
    "gptq in 2 bits of the second format": (
        "phi3", gptq(2, less=0), method("gptq", bits=2, checkpoint_format="gptq_v2"), MATRICES
    ),
    "gptq of experts": ("mixtral", gptq(4), method("gptq", bits=4), MATRICES),
    "awq": ("llama", awq, method("awq", bits=4, version="gemm"), MATRICES),
    "awq of fused matrices": ("phi3", awq, method("awq", bits=4, version="GEMM"), MATRICES),
    "mxfp4": ("gpt_oss", mxfp4, {"quantization_config": {"quant_method": "mxfp4"}}, EXPERTS),
    "fp8": ("qwen3", fp8(48, 64), method("fp8", weight_block_size=[48, 64]), MATRICES),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_quantised_folder_has_the_logits_of_its_numbers(tmp_path: Path, name: str) -> None:
    kind, pack, settings, packed = FOLDERS[name]
    model = model_of(kind)
    before = {name: one.clone() for name, one in model.named_parameters()}
    folder = write_quantised(tmp_path / "model", model, pack, settings, packed)
    # Rounding has changed the numbers, so what is compared is not the model as it was before.
    assert not all(torch.equal(one, before[name]) for name, one in model.named_parameters())
    check(model, open_model(str(folder)))


def written(tmp_path: Path, name: str) -> Path:
    kind, pack, settings, packed = FOLDERS[name]
    return write_quantised(tmp_path / "model", model_of(kind), pack, settings, packed)


@pytest.mark.parametrize("name", ["mlx in 4 bits", GPTQ, "awq", "mxfp4"])
def test_every_byte_of_the_weights_is_read_once(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pieces of a few rows: GPTQ and AWQ, which pack along columns, need the whole matrix for each.
    monkeypatch.setattr(parameters, "PIECE_BYTES", 5000)
    read: list[int] = []

    def counted(*given: Any) -> Any:
        found = read_piece(*given)
        read.append(len(found))
        return found

    monkeypatch.setattr(model_file, "read_piece", counted)
    folder = written(tmp_path, name)
    open_model(str(folder)).share(0, 4)
    assert sum(read) == sum(one.nbytes for one in load_file(folder / "model.safetensors").values())


MLX_WORDS = {
    3: [0x8277152F, 0xCC13BCA9, 0x2EE0A5E5],
    4: [0x7AE158CF, 0xBE259C03, 0xF269D047, 0x36AD148B],
    6: [0x46523C7F, 0x300E72BE, 0xB7B21697, 0x27D4241E, 0x286FF4A6, 0x31AA7711],
}
"""Bits -> the words of the numbers 7 i mod 32 for i < 32, by mlx.core.quantize of version 0.32.4 with a group of 32."""


@pytest.mark.parametrize("bits", MLX_WORDS)
def test_numbers_are_packed_as_mlx_packs_them(bits: int) -> None:
    # The numbers are 0 to 31. MLX takes 31 as 0, and 0 as the largest number of these bits.
    row = np.arange(32) * 7 % 32
    expected = np.round((31 - row) * (2**bits - 1) / 31).astype(int)
    assert unpacked(np.array([MLX_WORDS[bits]], np.uint32), bits)[0].tolist() == expected.tolist()


def test_experts_in_mxfp4_are_those_of_transformers() -> None:
    generator = np.random.default_rng(4)
    blocks = generator.integers(0, 256, (2, 6, 3, 16), dtype=np.uint8)
    scales = generator.integers(100, 140, (2, 6, 3), dtype=np.uint8)
    members = {"_blocks": blocks, "_scales": scales}
    rows = Mxfp4().rows(lambda ending, first=0, last=None: members[ending][first:last], (2, 96, 6), 0, 2)
    expected = convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32)
    assert torch.equal(torch.from_numpy(rows.copy()), expected)


def test_a_byte_of_fp8_is_the_number_that_torch_has() -> None:
    expected = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    torch.testing.assert_close(torch.from_numpy(E4M3), expected, rtol=0, atol=0, equal_nan=True)


def test_a_zero_point_of_0_is_read_although_files_store_it_less_1() -> None:
    # Rows 0 to 7 have the zero points 8, 0, 0, 15, 1, 2, 3, 4. A word stores 1 less in each of its 8 numbers at once.
    zeros = [8, 0, 0, 15, 1, 2, 3, 4]
    word = sum(zero << 4 * place for place, zero in enumerate(zeros)) - 0x11111111
    members = {
        ".qweight": np.full((4, 8), 0x55555555, np.uint32), ".qzeros": np.array([[word]], np.uint32),
        ".scales": np.ones((1, 8), np.float32), ".g_idx": np.zeros(32, np.uint32),
    }  # fmt: skip
    rows = Gptq(4, 32, 1).rows(lambda ending, first=0, last=None: members[ending][first:last], (8, 32), 0, 8)
    assert rows[:, 0].tolist() == [5 - zero for zero in zeros]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (method("bitsandbytes", load_in_4bit=True), "quantization_config: found 'bitsandbytes', expected mlx"),
        (method("hqq", nbits=4), "quantization_config: found 'hqq'"),
        (method("compressed-tensors"), "quantization_config: found 'compressed-tensors'"),
        ({"quantization_config": "gptq"}, "quantization_config: found 'gptq', expected a mapping"),
        ({"quantization_config": {"quant_method": ["gptq"]}}, r"quantization_config: found \"\['gptq'\]\""),
        ({"quantization": {"mode": "mxfp4", "bits": 4}}, "quantization: found 'mlx with mode mxfp4'"),
        ({"quantization": {"group_size": 32}}, r"quantization\.bits: found nothing, expected 2 or 3 or 4"),
        ({"quantization": {"bits": 7}}, r"quantization\.bits: found 7"),
        ({"quantization": {"bits": 4, "group_size": 0}}, r"quantization\.group_size: found 0, expected a whole number"),
        (method("gptq", bits=3), r"quantization_config\.bits: found 3, expected 2 or 4 or 8"),
        (method("gptq", bits=True), r"quantization_config\.bits: found True"),
        (method("gptq", bits=4, checkpoint_format="marlin"), r"checkpoint_format: found 'marlin', expected gptq or"),
        (method("awq", bits=4, version="gemv"), r"version: found 'gemv', expected gemm"),
        (method("awq", w_bit=8), r"quantization_config\.w_bit: found 8, expected 4"),
        (method("fp8"), r"weight_block_size: found nothing, expected rows and columns of a block"),
        (method("fp8", weight_block_size=[0, 128]), r"weight_block_size: found \[0, 128\]"),
    ],
)
def test_another_quantisation_is_refused_with_its_name(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    folder = write_folder(tmp_path / "model", model_of("llama"), **settings)
    with pytest.raises(UsageError, match=said) as error:
        open_model(str(folder))
    assert "config.json" in str(error.value)


Q = "model.layers.1.self_attn.q_proj"


@pytest.mark.parametrize(
    ("name", "ending", "shape", "dtype", "said"),
    [
        ("mlx in 4 bits", ".scales", (128, 3), torch.float32, r"F32 of the shape \(128, 3\), expected .* \(128, 2\)"),
        ("mlx in 4 bits", ".biases", (128, 2), torch.int32, r"biases: found I32 of the shape"),
        ("mlx in 4 bits", ".weight", (128, 8), torch.float32, r"found F32 of .*, expected U32 of \(128, 8\)"),
        (GPTQ, ".qzeros", (2, 8), torch.int32, r"qzeros: found I32 of .*, expected I32 of \(2, 16\)"),
        (GPTQ, ".qweight", (8,), torch.int32, r"qweight: found .*, expected a packed matrix"),
        (GPTQ, ".qweight", (7, 128), torch.int32, r"g_idx: found I32 of the shape \(64,\), expected I32 of \(56,\)"),
        (GPTQ, ".qweight", (16, 128), torch.int32, r"qzeros: found I32 of .*, expected I32 of \(4, 16\)"),
        ("awq", ".qweight", (64, 8), torch.int32, r"qzeros: found I32 of .*, expected I32 of \(2, 8\)"),
        ("fp8", ".weight", (128, 64), torch.int8, r"weight: found I8 of .*, expected F8_E4M3 of"),
        ("fp8", ".weight_scale_inv", (3,), torch.float32, r"found F32 of the shape \(3,\), expected .* \(3, 1\)"),
    ],
)
def test_a_wrong_member_is_found_before_a_node_starts(
    tmp_path: Path, name: str, ending: str, shape: tuple[int, ...], dtype: torch.dtype, said: str
) -> None:
    folder = written(tmp_path, name)
    file = folder / "model.safetensors"
    save_file(load_file(file) | {Q + ending: torch.zeros(shape, dtype=dtype)}, file)
    with pytest.raises(UsageError, match=said):
        open_model(str(folder))


@pytest.mark.parametrize(("ending", "said"), [("g_idx", r"I32 of \(96,\)"), ("scales", r"BF16 or .* of \(3, 64\)")])
def test_a_missing_member_is_named(tmp_path: Path, ending: str, said: str) -> None:
    folder = written(tmp_path, GPTQ)
    file = folder / "model.safetensors"
    save_file({key: one for key, one in load_file(file).items() if not key.endswith(ending)}, file)
    with pytest.raises(UsageError, match=rf"down_proj\.{ending}: found no such tensor, expected {said}"):
        open_model(str(folder))


@pytest.mark.parametrize("group", [2, -1])
def test_a_column_of_no_group_is_refused_when_it_is_read(tmp_path: Path, group: int) -> None:
    folder = written(tmp_path, GPTQ)
    file = folder / "model.safetensors"
    save_file(load_file(file) | {f"{Q}.g_idx": torch.full((64,), group, dtype=torch.int32)}, file)
    with pytest.raises(UsageError, match=r"layers\.1\.self_attn\.q_proj\.weight: found a column of group .* 2 groups"):
        open_model(str(folder)).share(0, 2)


def test_a_plan_sums_the_bytes_of_a_folder_with_several_numbers_of_bits(tmp_path: Path) -> None:
    folder = written(tmp_path, "mlx in 6 bits, with some in 8")
    tensors = load_file(folder / "model.safetensors").values()
    assert shape_of(str(folder)).whole_bytes == pytest.approx(sum(one.nbytes for one in tensors))


@pytest.mark.parametrize("name", ["mlx of experts", "gptq of experts", "mxfp4"])
def test_a_plan_knows_the_bytes_of_packed_experts(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path, name)
    tensors = load_file(folder / "model.safetensors")
    nbytes = sum(one.nbytes for key, one in tensors.items() if "switch_mlp" in key or "experts" in key)
    shape = shape_of(str(folder))
    assert shape.expert_bytes is not None
    assert shape.expert_bytes * shape.parts.routed == pytest.approx(nbytes)
