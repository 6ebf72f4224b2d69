"""What-if names what holds an experiment up: bottlenecks planted in smolcluster, and what the answer is made of."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import simcluster
from simcluster.errors import RunError, UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.what_if.critical_path import critical_path
from simcluster.lab.what_if.effects import effect
from simcluster.lab.what_if.goal import read_goal
from simcluster.lab.what_if.outcome import WhatIf
from simcluster.lab.what_if.perturb import Change
from simcluster.lab.what_if.report import render
from simcluster.runs.spans import Span
from tests.support.browser import assert_drawn, chromium, needs_browser
from tests.support.levels import sample_of

TIMED: dict[str, Any] = {
    "name": "timed",
    "topology": "smolcluster",
    "algorithm": {"name": "sync_ps"},
    "workload": {"name": "mnist_mlp"},
    "stop": {"steps": 3},
}


def ask(folder: Path, planted: dict[str, Any], goal: str = "step-time", **options: Any) -> WhatIf:
    options = {"seeds": 1, "jobs": 1, "out": folder / "w", "report": False, **options}
    return simcluster.whatif(
        TIMED, goal, overrides={f"topology.{key}": value for key, value in planted.items()}, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "kind", "part", "said"),
    sample_of(
        [
            ({"links.pi5-mini1.bandwidth": "10 Mbps"}, "bandwidth", "pi5-mini1", "to pass pi5-mini1 (10 Mbps)"),
            (
                {"nodes.pi4.straggler": {"kind": "constant", "factor": 10}},
                "straggler",
                "pi4",
                "waiting for pi4 to compute (raspberry-pi-4)",
            ),
            ({"links.mini1-mini2.latency": "50 ms"}, "latency", "mini1-mini2", "the latency of mini1-mini2 (50 ms)"),
            # Pushes of pi4, mini3 and mini2 all come to the server over one link, or all four through its network card.
            ({"links.mini1-mini2.bandwidth": "100 Mbps"}, "bandwidth", "mini1-mini2", "to pass mini1-mini2 (100 Mbps)"),
            ({"nodes.mini1.host_bandwidth": "100 Mbps"}, "nic", "mini1", "mini1's network card (100 Mbps)"),
        ],
        2,
    ),
    ids=["slow link", "slow device", "latency", "shared link", "server's network card"],
)
def test_a_planted_bottleneck_is_named_and_the_path_leads_there(
    planted: dict[str, Any], kind: str, part: str, said: str, tmp_path: Path
) -> None:
    found = ask(tmp_path, planted)
    best = found.bottleneck
    assert best is not None
    assert (best.change.kind, best.change.part) == (kind, part)
    assert best.gain > 0.3
    assert found.sentences[1].startswith("The bottleneck is ")
    assert part in found.sentences[1]
    assert said in found.answer
    longest = found.path.parts[0]
    assert longest.where == part
    assert longest.share > 0.5
    # What is bought first is for that part, and gains most of what there is to gain.
    if kind != "nic":
        assert found.purchases[0].change.part == part
        assert f"for {part}, " in found.sentences[-1]


@pytest.mark.slow
def test_staleness_that_hurts_is_named_with_how_stale_it_is(tmp_path: Path) -> None:
    # Workers pull every 4 steps; with this rate learning is near the edge, and with gradients half as old it is not.
    found = simcluster.whatif(
        {
            "topology": "smolcluster",
            "algorithm": {"name": "edp", "pull_interval": 4},
            "workload": {"name": "quadratic", "features": 32, "learning_rate": 0.1},
            "stop": {"steps": 40},
            "evaluate_every": 1,
        },
        "time-to-loss=0.02",
        seeds=1,
        jobs=1,
        out=tmp_path / "w",
        report=False,
    )
    best = found.bottleneck
    assert best is not None
    assert best.change.kind == "setting"
    assert best.change.part in ("max_staleness", "pull_interval")
    assert found.sentences[1].startswith("The bottleneck is staleness (the setting ")
    assert "updates old on average, then " in found.sentences[1]
    fewer = next(e for e in found.effects if e.change.label == "pull_interval: 2 in place of 4")
    assert fewer.gain > 0.2
    assert fewer.staleness is not None
    assert best.staleness is not None
    assert found.plan.numerics == "real"
    assert found.path.end_s == pytest.approx(found.base[0])


@pytest.mark.slow
def test_the_answer_has_its_numbers_in_the_table_the_folder_and_a_page(tmp_path: Path) -> None:
    # Two seeds differ, as pi4 is now and then slower.
    planted = {"nodes.pi4.straggler": {"kind": "lognormal", "sigma": 1.0}}
    seen: list[tuple[int, int]] = []
    found = ask(
        tmp_path, planted, seeds=2, report=True, progress=lambda done, total, before: seen.append((done, total))
    )
    assert seen[-1][0] == seen[-1][1] > 0
    assert len(found.base) == 2
    assert min(found.base.values()) < found.value < max(found.base.values())
    best = found.bottleneck
    assert best is not None
    assert best.lowest is not None
    assert best.highest is not None
    assert best.lowest < best.highest
    assert "over 2 seeds" in found.answer or "each of 2 seeds" in found.answer

    table = pd.read_csv(found.folder / "whatif.csv")
    assert list(table["change"]) == list(found.table["change"])
    assert table["relative"].abs().iloc[0] == max(abs(e.relative or 0) for e in found.effects)
    told = json.loads((found.folder / "whatif.json").read_text())
    assert told["answer"] == found.sentences == found.answer.split("\n")
    assert told["bottleneck"]["change"] == best.change.label
    assert sum(part["share"] for part in told["path"]) == pytest.approx(1)

    shown = found.plot.tornado().data[0]
    assert shown.x[-1] == pytest.approx(100 * (found.effects[0].relative or 0))
    assert sum(bar.x[0] for bar in found.plot.path().data) == pytest.approx(found.path.end_s * 1e3, rel=1e-6)
    html = found._repr_html_()
    assert len(html) < 10_000
    assert "<script" not in html
    assert all(escape(text) in html for text in (*found.sentences, found.effects[0].change.label))
    assert dir(found.plot) == ["path", "tornado"]
    page = (found.folder / "report.html").read_text()
    assert found.sentences[1] in page
    assert 'data-figure="tornado"' in page

    again = ask(tmp_path, planted, goal="run-time", seeds=2)
    assert again.value == pytest.approx(found.value * 3)  # 3 steps


@pytest.mark.slow
def test_energy_is_less_where_the_run_is_shorter_and_where_seeds_do_not_matter_one_is_enough(tmp_path: Path) -> None:
    found = ask(tmp_path, {"links.pi5-mini1.bandwidth": "10 Mbps"}, goal="energy", seeds=3)
    assert found.exact
    assert list(found.base) == [0]
    assert "(with any seed)" in found.sentences[0]
    assert "seed" not in found.sentences[1]
    assert found.bottleneck is not None
    assert found.bottleneck.change.part == "pi5-mini1"
    assert "J" in found.sentences[0]


@pytest.mark.slow
def test_of_a_trace_that_tells_only_a_part_the_path_is_of_that_part_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simcluster.runs.record.KEPT_SPANS", 5 * 6)  # of 5 nodes, which make more
    found = ask(tmp_path, {"links.pi5-mini1.bandwidth": "10 Mbps"})
    assert found.path.cut_short
    assert found.path.end_s < found.value * 3
    assert "Of the first " in found.answer
    assert found.path.parts[0].where == "pi5-mini1"


@pytest.mark.slow
def test_the_price_of_a_run_is_of_all_its_devices(tmp_path: Path) -> None:
    nodes = {f"nodes.{name}.price_per_hour": "0.5 USD/h" for name in ("mini1", "mini2", "mini3", "pi5", "pi4")}
    found = ask(tmp_path, nodes | {"links.pi5-mini1.bandwidth": "10 Mbps"}, goal="cost")
    shorter = ask(tmp_path, nodes | {"links.pi5-mini1.bandwidth": "10 Mbps"}, goal="run-time")
    assert found.value == pytest.approx(5 * 0.5 / 3600 * shorter.value)  # 5 devices of 0.5 USD an hour
    assert found.bottleneck is not None
    assert found.bottleneck.change.part == "pi5-mini1"


def test_a_goal_that_cannot_be_had_says_so_and_what_would_help(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="price_per_hour"):
        ask(tmp_path, {}, goal="cost")
    assert not (tmp_path / "w").exists()
    with pytest.raises(RunError, match=r"no time-to-accuracy as the experiment is \(the best accuracy was 0\.\d+\)"):
        ask(tmp_path, {}, goal="time-to-accuracy=0.99")


@pytest.mark.slow
def test_the_command_prints_the_answer_or_json(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from simcluster.cli.app import app

    request = [
        "whatif",
        "quickstart",
        "--goal",
        "run-time",
        "--set",
        "stop.steps=2",
        "--set",
        "workload={name: quadratic}",
    ]
    request += ["--jobs", "1", "--seeds", "1", "--no-report", "--out", str(tmp_path / "w")]
    said = CliRunner().invoke(app, request)
    assert said.exit_code == 0, said.output
    assert said.output.startswith("The time of the run is ")
    assert str(tmp_path / "w" / "whatif.csv") in said.output
    assert json.loads(CliRunner().invoke(app, [*request, "--json"]).output)["answer"][0] == said.output.splitlines()[0]


@pytest.mark.slow
@pytest.mark.browser
@needs_browser
def test_a_browser_draws_the_report_and_what_is_written_in_it_stays_text(tmp_path: Path) -> None:
    plan = read_experiment({**TIMED, "name": "<b>bold</b>", "numerics": "none"})
    change = Change("bandwidth", "a<i>-b", "a<i>-b: twice the <script>alert(1)</script>", {})
    bought = Change("purchase", "a<i>-b", "gold for a<i>-b", {}, 30.0)
    effects = [effect(change, {0: 2.0, 1: 2.0}, {0: 1.0, 1: 1.2}, None, None)]
    purchases = [effect(bought, {0: 2.0, 1: 2.0}, {0: 1.5, 1: 1.6}, None, None)]
    path = critical_path([(4, Span("compute", 0.0, 1.0, -1, "", 0))], plan.topology)
    found = WhatIf(tmp_path, plan, read_goal("run-time"), {0: 2.0, 1: 2.0}, None, effects, purchases, path)
    page = render(found)
    assert "<script>alert" not in page
    assert "<b>bold" not in page
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    assert_drawn(chromium((tmp_path / "report.html").as_uri(), tmp_path / "profile", 500), least=2)


def test_what_is_asked_wrongly_is_refused_before_anything_runs(tmp_path: Path) -> None:
    for options in ({"sets": ["algorithm.pull_interval=1,2"]}, {"seeds": 0}, {"jobs": 0}):
        with pytest.raises(UsageError):
            ask(tmp_path, {}, **options)
    with pytest.raises(UsageError, match="did you mean 'step-time'"):
        ask(tmp_path, {}, goal="steptime")
    patient = {"stop.steps": 9, "stop.patience": 2, "evaluate_every": 1}
    with pytest.raises(UsageError, match=r"stop\.patience: .* none with the goal step-time"):
        simcluster.whatif("quickstart", "step-time", algorithm="local_sgd", overrides=patient, out=tmp_path / "w")
    assert not (tmp_path / "w").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="other things in it"):
        ask(tmp_path, {}, out=tmp_path / "other")


def test_a_workload_without_accuracy_is_not_asked_for_more_steps(tmp_path: Path) -> None:
    document = {**TIMED, "workload": {"name": "quadratic"}}
    told = r"\(no evaluation of this workload gives accuracy\); what helps is a workload with accuracy, or another goal"
    with pytest.raises(RunError, match=told):
        simcluster.whatif(document, "time-to-accuracy=0.9", seeds=1, jobs=1, out=tmp_path / "w", report=False)
