"""A run explained: every number is that of its files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.lab.explain.run import TimeUse, explain_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("explained") / "run"
    simcluster.run("quickstart", stop={"steps": 6}, report=False, out=found)
    return found


def test_the_shares_of_a_node_are_those_of_its_summary_and_add_up(folder: Path) -> None:
    found = explain_run(folder)
    summary = found.run.summary
    for use in found.uses:
        assert use.compute == pytest.approx(summary["nodes"][use.node]["compute_s"] / summary["elapsed_s"], rel=1e-6)
        assert use.compute + use.send + use.wait + use.other == pytest.approx(1, rel=1e-12)
        assert min(use.compute, use.send, use.wait, use.other) >= -1e-12


def test_the_sentences_name_what_ran_the_slowest_node_the_link_and_what_next(folder: Path) -> None:
    found = explain_run(folder)
    text = " ".join(found.sentences())
    assert text.startswith("sync_ps trained mnist_mlp on 5 nodes of smolcluster (simulated, seed 0): 6 steps in ")
    assert "pi4 computed most: " in text
    first = found.parts[0]
    assert first.kind == "link"
    assert f"Most would be gained by more bandwidth on {first.where}" in text
    assert f"`simcluster whatif {folder / 'config.yaml'}`" in text
    told = json.loads(json.dumps(found.to_dict()))
    assert told["critical_path"][0]["share"] == first.share
    assert told["elapsed_s"] == found.run.summary["elapsed_s"]
    assert sum(part.share for part in found.parts) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("computed", [0.5, 0.0])
def test_a_trace_without_any_computing_does_not_speak_for_the_run(folder: Path, computed: float) -> None:
    whole = explain_run(folder)
    run: Any = SimpleNamespace(folder=folder, summary=whole.run.summary, config=whole.run.config, warnings=[], calls=[])
    run.rests = {0: None}
    text = " ".join(replace(whole, run=run, uses=shares(a=computed, b=computed), covered_s=1e-6).sentences())
    assert ("what the end of the first " in text) == bool(computed)
    assert ("Most would be gained by" in text) == bool(computed)
    assert ("in which no node computed: nothing" in text) == (not computed)


def shares(**computed: float) -> tuple[TimeUse, ...]:
    return tuple(TimeUse(name, share, 0.0, 1 - share, 0.0) for name, share in computed.items())


@pytest.mark.parametrize(
    ("uses", "said"),
    [
        # Rounded to a percent, 0.381 and 0.379 are the same.
        (shares(a=0.381, b=0.379, c=0.38), ["All 3 nodes computed equally, 38 % of the time."]),
        (shares(a=0.5), ["a: 50 % computing, 0 % sending and 50 % waiting for messages, of the time."]),
        (
            shares(a=0.0, b=0.38, c=0.38),
            [
                "b and c computed most, each 38 %, of the time.",
                "a computed least: 0 % computing, 0 % sending and 100 % waiting for messages.",
            ],
        ),
        (
            shares(a=0.5, b=0.38, c=0.38),
            [
                "a computed most: 50 % computing, 0 % sending and 50 % waiting for messages, of the time.",
                "b and c computed least, each 38 %.",
            ],
        ),
    ],
)
def test_nodes_with_the_same_share_computed_equally(uses: tuple[TimeUse, ...], said: list[str], folder: Path) -> None:
    assert replace(explain_run(folder), uses=uses)._computed() == said


def test_a_run_that_lost_a_node_says_so(tmp_path: Path) -> None:
    simcluster.run(
        "quickstart", stop={"steps": 6}, report=False, out=tmp_path / "run",
        faults=[{"kind": "crash", "node": "pi4", "at": "10 ms"}],
    )  # fmt: skip
    assert any(one.startswith("pi4 was lost: ") for one in explain_run(tmp_path / "run").sentences())


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this file of a run folder"):
        explain_run(tmp_path)


@pytest.mark.slow
def test_the_command_explains_both(folder: Path, command: Any) -> None:
    code, out, err = command("explain", str(folder))
    assert (code, err) == (0, "")
    assert "pi4 computed most: " in out
    code, out, _ = command("explain", "all_reduce_dp", "--nodes", "3", "--set", "schedule=direct", "--json")
    found = json.loads(out)
    assert (code, found["kind"], found["nodes"]) == (0, "algorithm", 3)
    assert found["traffic"][0]["way"] == "each node to every other one"
    code, _, err = command("explain", str(folder), "--nodes", "3")
    assert code == 2
    assert "--nodes: found a run, expected it only for an algorithm" in err
