"""`simcluster plan`: a table of 80 columns, JSON with the same numbers, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcluster.lm.cli import plan as page
from simcluster.lm.formats import FORMATS
from simcluster.lm.plan.shape import PRESETS
from tests.support.levels import sample_of
from tests.support.root import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("topology", sample_of(["halos-4-regions", "smolcluster", "star-8-gigabit"]))
@pytest.mark.parametrize("model", ["smollm2", "70b"])
def test_a_plan_fits_eighty_columns(topology: str, model: str, command: Any, tmp_path: Path) -> None:
    code, out, err = command("plan", topology, "--model", model)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "one request " in out
    assert "8 requests " in out
    assert list(tmp_path.iterdir()) == []


def test_the_table_of_the_documentation_is_that_of_the_command(command: Any) -> None:
    _, out, _ = command("plan", "smolcluster", "--model", "8b", "--weights", "q4", "--engine", "llama.cpp")
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    rows = text.partition("first command:\n\n")[2].partition("\n**Why")[0].splitlines()
    assert len(rows) == 9
    assert [row for row in rows if row.removeprefix("    ") not in out.splitlines()] == []


@pytest.mark.slow
def test_json_has_the_numbers_of_the_table(command: Any) -> None:
    _, table, _ = command("plan", "smolcluster", "--model", "8b", "--weights", "int8")
    code, out, _ = command("plan", "smolcluster", "--model", "8b", "--weights", "int8", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["topology"], found["model"]["weights"]) == ("smolcluster", 8_030_261_248)
    assert [ranking["requests"] for ranking in found["rankings"]] == [1, 8]
    for ranking in found["rankings"]:
        best = ranking["placements"][0]
        assert f"{best['tokens_per_s']:.4g}" in table
        assert best["token_s"] * best["tokens_per_s"] == pytest.approx(ranking["requests"], rel=0.2)
        for row in ranking["buy"]:
            assert row["tokens_per_s"] > best["tokens_per_s"]
            assert row["price_usd"] > 0
    assert found["rankings"][0]["left_out"][0]["node"] == "mini3"


def test_the_plan_names_its_engine_and_the_source_of_its_intervals(command: Any) -> None:
    _, own, _ = command("plan", "star-8-gigabit", "--model", "smollm2", "--requests", "1")
    assert "engine: transformers, which `simcluster serve` runs" in own
    assert "none of this engine; pipeline not measured beyond 4 nodes" in " ".join(own.split())
    _, other, _ = command("plan", "star-8-gigabit", "--model", "smollm2", "--requests", "1", "--engine", "llama.cpp")
    assert "engine: llama.cpp" in other
    assert "none of this engine" not in " ".join(other.split())


def test_help_and_documentation_name_every_model_and_format() -> None:
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    assert tuple(PRESETS) == page.MODELS
    assert [name for name in PRESETS if f"`{name}`" not in text] == []
    assert f"`--weights {'|'.join(FORMATS)}|auto`" in text


def test_one_request_has_one_ranking(command: Any) -> None:
    _, out, _ = command("plan", "smolcluster", "--model", "8b", "--weights", "int8", "--requests", "1", "--json")
    assert [ranking["requests"] for ranking in json.loads(out)["rankings"]] == [1]


def test_a_model_that_fits_nowhere_is_told_with_what_is_missing(command: Any) -> None:
    code, out, _ = command("plan", "smolcluster", "--model", "70b", "--weights", "bf16")
    assert code == 0
    assert "nothing fits" in out
    # 141.107 GB, and 640 tokens of 2 x 80 layers x 8 heads x 128 x 2 bytes: 0.210 GB, in 10.667 of 16 GB.
    assert "no alone: mini1, mini2, mini3 (130.7 GB missing)" in " ".join(out.split())
    assert "buy: no part of the list makes it fit" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["smolclutser", "--model", "7b"], "did you mean 'smolcluster'?"),
        (["smolcluster", "--model", "7B"], "did you mean '7b'?"),
        (["smolcluster", "--model", "7b", "--weights", "q5"], "--weights: found 'q5', expected a format:"),
        (
            ["smolcluster", "--model", "7b", "--weights", "bf16", "--engine", "distributed-llama"],
            "f32, q4, which distributed-llama holds; --engine transformers or llama.cpp or mlx or exo holds bf16",
        ),
        (["smolcluster", "--model", "7b", "--engine", "ollama"], "--engine: found 'ollama'"),
        (["smolcluster", "--model", "7b", "--requests", "0"], "--requests: found 0, expected a number from 1 to 1,024"),
        (["smolcluster", "--model", "7b", "--parts", "no.yaml"], "--parts: found no.yaml, expected a file"),
        (["smolcluster"], "--model: found nothing"),
    ],
)
def test_a_wrong_request_is_refused(words: list[str], said: str, command: Any) -> None:
    code, out, err = command("plan", *words)
    assert (code, out) == (2, "")
    assert said in err


def test_json_has_the_bytes_of_activations_that_a_token_sends(command: Any) -> None:
    _, out, _ = command("plan", "smolcluster", "--model", "8b", "--weights", "int8", "--json")
    placements = json.loads(out)["rankings"][0]["placements"]
    sent = {(one["kind"], len(one["nodes"])): one["bytes_per_token"] for one in placements}
    # Llama 3 8B: 32 layers, 4,096 numbers a token of 4 bytes. Two nodes: 2 (2 - 1) 2 32 4,096 4 = 2,097,152 bytes by
    # tensor parallelism; a pipeline sends one token's numbers over each hop.
    width_bytes = 4_096 * 4
    assert sent["tensor", 2] == 2 * 2 * 32 * width_bytes
    assert sent["pipeline", 2] == width_bytes
    assert sent["pipeline", 3] == 2 * width_bytes
    assert sent["alone", 1] == 0


@pytest.mark.slow
def test_training_prints_a_ranking_and_json_has_its_numbers(command: Any) -> None:
    words = ("plan", "smolcluster", "--model", "smollm2", "--training", "--batch-size", "6", "--sample-tokens", "128")
    code, table, err = command(*words)
    assert (code, err) == (0, "")
    found = json.loads(command(*words, "--json")[1])
    assert (found["samples_per_step"], found["tokens_per_sample"]) == (6, 128)
    best = found["trainings"][0]
    assert f"{best['training']:<17}  {best['tokens_per_s']:>8.4g}" in table
    assert best["tokens_per_s"] * best["step_s"] == pytest.approx(6 * 128, rel=1e-9)
    assert best["nodes"][0]["needed_bytes"] == sum(best["nodes"][0]["parts_bytes"].values())


@pytest.mark.slow
def test_the_rows_of_training_in_the_documentation_are_those_of_the_command(command: Any) -> None:
    _, out, _ = command("plan", "smolcluster", "--model", "smollm2", "--training")
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    rows = (
        text.partition("The first rows of the first command:\n\n")[2]
        .partition("\n- The model")[0]
        .strip("\n")
        .splitlines()
    )
    assert len(rows) == 3
    assert [row for row in rows if row.removeprefix("    ") not in out.splitlines()] == []


def test_training_refuses_what_no_training_has(command: Any) -> None:
    code, out, err = command("plan", "smolcluster", "--model", "smollm2", "--training", "--batch-size", "0")
    assert (code, out) == (2, "")
    assert "--batch-size: found 0, expected a number from 1 to 1,000,000" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch-size", "8"], "--batch-size: found the option, expected it only with --training"),
        (["--training", "--requests", "8"], "--requests: found the option, expected it only without --training"),
        (["--training", "--weights", "q4"], "--weights: found the option, expected it only without --training"),
    ],
)
def test_an_option_without_an_effect_is_refused(words: list[str], said: str, command: Any) -> None:
    code, _, err = command("plan", "smolcluster", "--model", "smollm2", *words)
    assert code == 2
    assert said in err
