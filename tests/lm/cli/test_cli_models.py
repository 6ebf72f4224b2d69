"""Models of all kinds in `plan`, `generate`, `serve` and `bench serving`: one answer in all, and before nodes start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES

from tests.lm.headers.public import PUBLIC, SCALED, llama

TINY = llama("llama", 2, 64, 4, 2, 128, 258, max_position_embeddings=512, hidden_act="silu")


def written(path: Path, kind: gguf.GGMLQuantizationType, without: str = "") -> str:
    """Write a Llama of one layer, whose inner sizes are blocks of K-quants, with weights of *kind*; return its path."""
    width, writer = 256, gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(width)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    block, size = GGML_QUANT_SIZES[kind]
    layers = [
        f"blk.{n}.{name}"
        for n in (0, 1)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    ]
    for name in ["token_embd", *layers]:
        if name != without:
            writer.add_tensor(f"{name}.weight", np.zeros((width, width // block * size), np.uint8), raw_dtype=kind)
    for name in ["output_norm", *(f"blk.{n}.{name}" for n in (0, 1) for name in ("attn_norm", "ffn_norm"))]:
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def config(path: Path, **more: Any) -> str:
    path.write_text(json.dumps(TINY | more))
    return str(path.parent)


MODELS: dict[str, tuple[Callable[[Path], str], str]] = {
    "scaled rotations": (
        lambda at: config(at / "config.json", rope_scaling=SCALED | {"rope_type": "dynamic"}),
        "rope_scaling: found rope_type dynamic, expected one of default, linear, llama3, yarn",
    ),
    "another family": (
        lambda at: config(at / "config.json", model_type="olmo"), "model_type: found 'olmo', expected one of gemma",
    ),
    "sizes alone": (lambda at: config(at / "config.json"), "weights: found none"),
    "an unknown type": (
        lambda at: written(at / "a.gguf", gguf.GGMLQuantizationType.Q8_K), "found weights of type Q8_K, expected",
    ),
    "a preset": (lambda at: "8b", "model: found '8b', a preset without weights, expected a model with weights: smoll"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_the_engine_cannot_run_is_refused_in_one_line_with_the_way_to_times(
    name: str, command: Any, tmp_path: Path
) -> None:
    make, said = MODELS[name]
    model = make(tmp_path)
    shelf = ("smolcluster", "--model", model)
    bench = ("bench", "serving", *shelf, "--rate", "1", "--requests", "1", "--numerics")
    for words, way in (
        (("generate", *shelf, "--prompt", "hi"), "; times alone: --prompt-tokens N"),
        (("serve", *shelf), "; times alone: generate with --prompt-tokens N"),
        ((*bench, "real"), "; times alone: --numerics none"),
    ):
        code, out, err = command(*words)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert said in err
        assert err.endswith(f"{way}\n")
    short = ("--prompt-tokens", "8", "--weights", "q4")
    assert command("generate", *shelf, *short, "--max-tokens", "2")[0] == 0
    assert command(*bench, "none", "--prompt-tokens", "8", "--output-tokens", "2", "--weights", "q4")[0] == 0
    code, out, _ = command("plan", *shelf)
    assert code == 0
    assert "serve " in out.splitlines()[-2] + out.splitlines()[-1]


def test_a_model_of_no_known_family_has_no_times(command: Any, tmp_path: Path) -> None:
    config(tmp_path / "config.json", model_type="bert")
    for words in (("plan",), ("generate", "--prompt", "hi"), ("generate", "--prompt-tokens", "8"), ("serve",)):
        code, _, err = command(words[0], "smolcluster", "--model", str(tmp_path), *words[1:])
        assert code == 2
        assert "model_type: found 'bert', expected a decoder" in err
        assert "times alone" not in err


@pytest.mark.parametrize("backend", ["sim", "sockets"])
def test_a_file_that_lacks_a_tensor_is_refused_before_nodes_start(backend: str, command: Any, tmp_path: Path) -> None:
    model = written(tmp_path / "a.gguf", gguf.GGMLQuantizationType.F16, without="blk.1.ffn_up")
    code, out, err = command("generate", "smolcluster", "--model", model, "--prompt", "hi", "--backend", backend)
    assert (code, out) == (2, "")
    assert "layer 1: ffn_up.weight: found no such tensor" in err


@pytest.mark.slow
def test_a_plan_says_how_a_model_is_served(command: Any, tmp_path: Path) -> None:
    model = written(tmp_path / "a.gguf", gguf.GGMLQuantizationType.F16)
    found = json.loads(command("plan", "smolcluster", "--model", model, "--json")[1])
    # 15 matrices and 5 norms of 256; f32 takes twice the bytes of the matrices.
    assert found["model"]["weights"] == 15 * 256**2 + 5 * 256
    assert found["model"]["whole_bytes"] == pytest.approx(2 * 15 * 256**2 + 4 * 5 * 256)
    assert found["serve"] == "serve holds weights in f32, bf16, f16, int8, q4, by default in f32: 3.937 MB"
    assert (
        json.loads(command("plan", "smolcluster", "--model", model, "--weights", "bf16", "--json")[1])["serve"] is None
    )
    found = json.loads(command("plan", "smolcluster", "--model", "7b", "--json")[1])
    assert found["model"]["weight_bytes"] == 2
    assert found["serve"] == "serve has no weights of Llama 2 7B; times alone: generate with --prompt-tokens N"
    assert json.loads(command("plan", "smolcluster", "--model", "smollm2", "--json")[1])["serve"] is None


def test_the_context_of_a_model_is_a_bound_in_every_command(command: Any, tmp_path: Path) -> None:
    shelf = ("smolcluster", "--model", config(tmp_path / "config.json"))
    found = "--prompt-tokens: found 32,768 tokens of prompt and 4 of answer, expected at most 512 positions"
    for words in (
        ("plan", *shelf, "--prompt-tokens", "32768", "--output-tokens", "4"),
        ("generate", *shelf, "--prompt-tokens", "32768", "--max-tokens", "4"),
        (
            "bench",
            "serving",
            *shelf,
            "--rate",
            "1",
            "--requests",
            "1",
            "--prompt-tokens",
            "32768",
            "--output-tokens",
            "4",
        ),
    ):
        code, out, err = command(*words)
        assert (code, out) == (2, "")
        assert found in err or "exceed the context of 512" in err
    code, _, err = command("plan", *shelf, "--training", "--sample-tokens", "513")
    assert code == 2
    assert "--sample-tokens: found 513" in err
    lengths = json.loads(command("plan", *shelf, "--json")[1])
    assert (lengths["prompt_tokens"], lengths["output_tokens"]) == (384, 128)  # what the context leaves


def test_a_model_that_is_not_llama_is_not_trained_as_one(command: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLIC["qwen1.5-moe-a2.7b"][0]))
    code, _, err = command("plan", "smolcluster", "--model", str(tmp_path), "--training")
    assert code == 2  # it has shared experts, too
    assert "found 14,315,784,192 weights, where Llama's layers of these sizes have 13,485,115,392" in err


@pytest.mark.parametrize("command_name", ["plan", "generate", "serve"])
def test_a_long_name_is_refused_in_one_short_line(command_name: str, command: Any) -> None:
    more = ["--prompt", "hi"] if command_name == "generate" else []
    code, _, err = command(command_name, "smolcluster", "--model", "x" * 5000, *more)
    assert code == 2
    assert err.startswith("error: ")
    assert len(err) < 400
