"""`simcluster generate`: the answer, its JSON, times alone, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from simcluster.lm.cli import options as page
from simcluster.lm.engine.limits import CHUNK_TOKENS
from simcluster.lm.plan.shape import PRESETS
from simcluster.lm.serving.placement import AUTO, KINDS, POLICIES
from simcluster.lm.serving.start_server import CHUNK_TOKENS as SERVED_CHUNK_TOKENS
from tests.lm.models.test_trained import SIZES, folder_of


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder_of(tmp_path, SIZES)
    return str(tmp_path)


def test_the_names_of_the_help_are_those_of_the_tables() -> None:
    assert tuple(PRESETS) == page.MODELS
    assert (AUTO, *KINDS) == page.PLACEMENTS
    assert page.POLICIES == POLICIES
    assert (page.CHUNK_TOKENS, page.SERVED_CHUNK_TOKENS) == (CHUNK_TOKENS, SERVED_CHUNK_TOKENS)


def test_an_unknown_engine_is_one_error(command: Any, model: str) -> None:
    code, _, err = command("generate", "smolcluster", "--model", model, "--prompt", "To be", "--engine", "vllm")
    assert (code, err) == (2, "error: --engine: found 'vllm', expected one of llama.cpp, mlx, transformers\n")


def test_text_and_json_are_the_same_answer(command: Any, model: str) -> None:
    words = ("generate", "smolcluster", "--model", model, "--prompt", "To be", "--max-tokens", "6")
    code, text, err = command(*words, "--placement", "pipeline")
    assert code == 0
    assert "6 tokens; the first after" in err
    code, out, _ = command(*words, "--placement", "pipeline", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["text"] + "\n" == text
    assert len(found["token_ids"]) == found["tokens"] == 6
    ids = b"".join(token.to_bytes(4, "little") for token in found["token_ids"])
    assert found["token_ids_sha256"] == hashlib.sha256(ids).hexdigest()
    assert found["placement"] == "pipeline"
    assert sum(node["layers"] for node in found["nodes"]) == 3
    # 5 tokens of prompt and 5 of answer have keys and values of 48 numbers of 4 bytes each in a layer.
    assert [node["cache_bytes"] for node in found["nodes"]] == [2 * 10 * 48 * 4 * n["layers"] for n in found["nodes"]]
    assert all(node["peak_memory_bytes"] == node["weight_bytes"] + node["cache_bytes"] for node in found["nodes"])


def test_a_placement_from_a_file_is_used(command: Any, model: str, tmp_path: Path) -> None:
    file = tmp_path / "placement.yaml"
    file.write_text("kind: pipeline\nnodes: {pi5: 1, mini2: 2}\n")
    words = ("generate", "smolcluster", "--model", model, "--prompt", "To be", "--max-tokens", "2", "--json")
    _, out, _ = command(*words, "--placement", str(file))
    assert [(node["node"], node["layers"]) for node in json.loads(out)["nodes"]] == [("pi5", 1), ("mini2", 2)]
    answer = json.loads(out)["token_ids"]
    file.write_text("kind: replicas\nnodes: [mini2, pi5]\nprefill: [pi5]\n")
    _, out, _ = command(*words, "--placement", str(file))
    found = json.loads(out)
    assert found["token_ids"] == answer
    pi5, mini2 = found["nodes"]
    assert (pi5["node"], mini2["node"]) == ("pi5", "mini2")  # the one that prefills is the first
    # Keys and values of the prompt's 5 tokens, 48 numbers of 4 bytes each in 3 layers, go on; a sixth is decoded.
    assert pi5["bytes_sent"] > pi5["cache_bytes"] == 2 * 3 * 48 * 4 * 5
    assert mini2["cache_bytes"] == 2 * 3 * 48 * 4 * 6


def test_what_a_device_lacks_for_a_forecast_is_said_next_to_it(command: Any, model: str, tmp_path: Path) -> None:
    file = tmp_path / "shelf.yaml"
    link = "links: [{between: [a, b], type: ethernet-1g}]"
    file.write_text(f"nodes: {{a: {{flops: 1 GFLOP/s}}, b: {{flops: 1 MFLOP/s, operator_overhead: 1 us}}}}\n{link}\n")
    words = ("generate", str(file), "--model", model, "--prompt", "To be", "--max-tokens", "2", "--placement")
    code, _, err = command(*words, "alone")
    assert code == 0
    assert "times: without memory_bandwidth, so timed by FLOPs alone: a\n" in err
    assert "times: without operator_overhead, so small models look too fast: a\n" in err
    assert "times: without" not in command("generate", "smolcluster", *words[2:], "alone")[2]


@pytest.mark.slow
def test_times_alone_need_no_weights(command: Any) -> None:
    words = (
        "generate",
        "smolcluster",
        "--model",
        "8b",
        "--weights",
        "int8",
        "--prompt-tokens",
        "512",
        "--max-tokens",
        "128",
        "--json",
    )
    code, out, _ = command(*words)
    found = json.loads(out)
    assert code == 0
    assert (found["text"], found["token_ids"], found["token_ids_sha256"]) == (None, None, None)
    _, out, _ = command("plan", "smolcluster", "--model", "8b", "--weights", "int8", "--json")
    placements = json.loads(out)["rankings"][0]["placements"]
    best = next(one for one in placements if one["kind"] != "hybrid")  # the best of those that are made by a name
    assert found["placement"] == best["kind"]
    assert found["ttft_s"] == pytest.approx(best["ttft_s"], rel=1e-9)
    # The mean over all decoded tokens is nearly that of the one in the middle.
    assert found["tpot_s"] == pytest.approx(best["token_s"], rel=1e-4)
    # A time is as far off as the rate: the lowest of rates is the longest of times.
    low, high = (end / best["tokens_per_s"] for end in best["tokens_per_s_interval"])
    assert found["tpot_s_interval"] == pytest.approx([found["tpot_s"] / high, found["tpot_s"] / low])


def test_guesses_are_counted_and_change_no_token(command: Any, model: str) -> None:
    words = ("generate", "smolcluster", "--model", model, "--prompt", "To", "--max-tokens", "18", "--guesses")
    plain, found = (json.loads(command(*words, count, "--json")[1]) for count in ("0", "4"))
    assert found["token_ids"] == plain["token_ids"]
    assert found["proposed"] >= found["accepted"] > plain["proposed"] == 0
    assert f"{found['accepted']} of {found['proposed']} guesses were right" in command(*words, "4")[2]


@pytest.mark.parametrize("words", [("generate",), ("serve",), ("bench", "serving")])
def test_a_second_model_is_an_unknown_option(words: tuple[str, ...], command: Any) -> None:
    code, out, err = command(*words, "smolcluster", "--model", "70b", "--draft", "8b")
    assert (code, out) == (2, "")
    assert err.startswith("error: --draft: unknown option; ")


@pytest.mark.parametrize(
    ("words", "errors"),
    [
        (
            ["--model", "smollm3", "--max-tokens", "0", "--top-p", "2", "--temperature", "-1", "--chunk-tokens", "0"],
            [
                "--max-tokens: found 0, expected a number from 1 to 1,000,000",
                "--temperature: found -1.0, expected a number from 0 to 100",
                "--top-p: found 2.0, expected a number above 0, up to 1",
                "--prompt: found none, expected a text; or --prompt-tokens for times alone",
                "--chunk-tokens: found 0, expected a number from 1 to 1,000,000",
                "model: found 'smollm3': no such file and no such name",
            ],
        ),
        (
            ["--model", "8b", "--prompt-tokens", "4", "--backend", "sockets", "--placement", "pipline"],
            [
                "--prompt-tokens: found it with --backend sockets, expected --backend sim, which needs no numbers",
                "--placement: found 'pipline': no such file and no such name, expected a placement: did you mean",
            ],
        ),
        (
            ["--model", "8b", "--prompt-tokens", "4", "--guesses", "3"],
            ["--guesses: found 3, expected none, as no token is known"],
        ),
        (
            ["--model", "GPT", "--prompt", "To", "--guesses", "65"],
            ["--guesses: found 65, expected a whole number from 0 to 64"],
        ),
        (["--model", "70b", "--prompt-tokens", "4", "--placement", "alone"], ["--placement: found alone for Llama 3"]),
        (["--model", "GPT", "--prompt", "To", "--max-tokens", "23"], ["request 0: 2 tokens of prompt and 23 of"]),
    ],
)  # fmt: skip
def test_requests_that_cannot_be_met_are_refused_with_all_problems(
    words: list[str], errors: list[str], command: Any, model: str
) -> None:
    code, out, err = command("generate", "smolcluster", *(model if word == "GPT" else word for word in words))
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == len(errors)
    for line, error in zip(lines, errors, strict=True):
        assert line.startswith(f"error: {error}")


def test_a_placement_file_is_refused_with_all_that_is_wrong(command: Any, model: str, tmp_path: Path) -> None:
    file = tmp_path / "placement.yaml"
    file.write_text("kind: pipeline\nnodes: {pi6: 1, mini2: 3}\nsize: 3\n")
    words = ("generate", "smolcluster", "--model", model, "--prompt", "To be")
    code, _, err = command(*words, "--placement", str(file))
    assert code == 2
    for error in (":3:1: size: unknown key", "found 'pi6', expected a worker: did you mean", "found 4 layers in all"):
        assert error in err
    file.write_text("kind: tensor\nnodes: [pi4, mini1, mini2, mini3]\n")
    _, _, err = command(*words, "--placement", str(file))
    assert "found 4 nodes, expected a number that divides the 6 KV heads" in err
    for kind, prefill, error in (
        (
            "replicas",
            "[mini1, mini2]",
            ":3:10: prefill: found a list of 2, expected a list of some of the nodes, not all",
        ),
        ("replicas", "[pi4]", "expected a list of some of the nodes, not all"),
        ("replicas", "mini1", "expected a list of some of the nodes, not all"),
        ("tensor", "[mini1]", "expected it with kind: replicas alone"),
    ):
        file.write_text(f"kind: {kind}\nnodes: [mini1, mini2]\nprefill: {prefill}\n")
        code, _, err = command(*words, "--placement", str(file))
        assert code == 2
        assert error in err
