"""Every command that takes a topology: one machine, with and without `links`, and a topology from a generator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.levels import sample_of

SHELVES = {
    "bare": "nodes: {mini1: {device: mac-mini-m4}}\n",
    "with links": "nodes: {mini1: {device: mac-mini-m4}}\nlinks: []\n",
    "no value": "nodes: {mini1: {device: mac-mini-m4}}\nlinks:\n",
    "generator": "{generator: star, workers: 3}\n",
}

EXPERIMENT = {
    "name": "tiny",
    "topology": "shelf.yaml",
    "algorithm": {"name": "all_reduce_dp"},
    "workload": {"name": "quadratic"},
    "stop": {"steps": 2},
}

SHAPE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
}

LOAD = ("--requests", "2", "--rate", "inf", "--prompt-tokens", "8", "--output-tokens", "2")

COMMANDS = {
    "plan": ("plan", "shelf.yaml", "--model", "8b"),
    "plan of training": ("plan", "shelf.yaml", "--model", "config.json", "--training", "--sample-tokens", "8"),
    "generate": (
        "generate",
        "shelf.yaml",
        "--model",
        "8b",
        "--weights",
        "q4",
        "--prompt-tokens",
        "8",
        "--max-tokens",
        "2",
    ),
    "bench serving": ("bench", "serving", "shelf.yaml", "--model", "8b", "--weights", "q4", *LOAD),
    "bench collective": ("bench", "collective", "--op", "all_reduce", "--topology", "shelf.yaml"),
    "flows": ("flows", "--topology", "shelf.yaml", "--flows", "flows.json"),
    "topology check": ("topology", "check", "shelf.yaml"),
    "topology draw": ("topology", "draw", "shelf.yaml"),
    "run": ("run", "tiny.yaml", "--out", "run"),
    "run of another device": ("run", "tiny.yaml", "--out", "run", "--set", "topology.nodes.*.memory=8 GB"),
    "sweep": ("sweep", "tiny.yaml", "--set", "stop.steps=1", "--jobs", "1", "--out", "sweep", "--no-report"),
    "whatif": ("whatif", "tiny.yaml", "--goal", "step-time", "--seeds", "1", "--jobs", "1", "--no-report"),
    "baseline": ("baseline", "tiny.yaml"),
}

OF_A_RUN = (
    ("report", "run"),
    ("explain", "run"),
    ("compare", "run", "run"),
    ("figure", "run", "topology", "--out", "topology.html"),
    ("figure", "run", "links", "--out", "links.html"),
)


@pytest.fixture
def asked(command: Any, tmp_path: Path) -> Any:
    """Runs commands in a folder with a topology file, an experiment on it, a model's header and no flow."""

    def ask(shelf: str, *commands: tuple[str, ...]) -> list[str]:
        (tmp_path / "shelf.yaml").write_text(SHELVES[shelf], encoding="utf-8")
        (tmp_path / "tiny.yaml").write_text(json.dumps(EXPERIMENT), encoding="utf-8")
        (tmp_path / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
        (tmp_path / "flows.json").write_text("[]", encoding="utf-8")
        found = []
        for arguments in commands:
            code, out, err = command(*arguments)
            assert (code, arguments, err if code else "") == (0, arguments, "")
            found.append(out)
        return found

    return ask


@pytest.mark.slow
@pytest.mark.parametrize("shelf", sample_of(SHELVES))
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_every_topology(name: str, shelf: str, asked: Any) -> None:
    asked(shelf, COMMANDS[name])


@pytest.mark.slow
@pytest.mark.parametrize("shelf", ["bare", "generator"])
def test_every_command_takes_a_run_of_every_topology(shelf: str, asked: Any) -> None:
    asked(shelf, COMMANDS["run"], *OF_A_RUN)


@pytest.mark.parametrize("name", ["plan", "plan of training", "generate", "topology check"])
def test_no_links_are_an_empty_list(name: str, asked: Any) -> None:
    assert asked("bare", COMMANDS[name]) == asked("with links", COMMANDS[name])
