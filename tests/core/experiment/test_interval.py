"""A prediction on a calibrated topology says how sure it is; everywhere else nothing changes. Times in seconds."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment.interval import UNREHEARSED, interval
from simcluster.lab.calibrate import calibrate
from simcluster.lab.calibrate.write import calibrated_document
from simcluster.results import compare, load_run
from simcluster.topology import load
from simcluster.topology.replicas import replica, rounds_of

FACTORS = [1.0 + 0.01 * number for number in range(-9, 10)]
CLUSTER: dict[str, Any] = {
    "name": "measured",
    "nodes": {
        "a": {"flops": "1 GFLOP/s", "profile": {"quadratic/gradient": "100 ms"}, "spread": {"profile": FACTORS}},
        "b": {"flops": "1 GFLOP/s", "profile": {"quadratic/gradient": "100 ms"}},
    },
    "links": [
        {"between": ["a", "b"], "bandwidth": "1 Mbps", "latency": "1 ms", "spread": {"bandwidth": FACTORS[::-1]}}
    ],
    "misfit": [1.01] * 19,
}
PLAN: dict[str, Any] = {"algorithm": "all_reduce_dp", "workload": "quadratic", "stop": {"steps": 3}}


def predicted(folder: Path, topology: dict[str, Any] = CLUSTER, **options: Any) -> simcluster.Run:
    return simcluster.run(PLAN | {"topology": topology}, out=folder, report=False, options=options)


def without_spread(topology: dict[str, Any]) -> dict[str, Any]:
    plain = copy.deepcopy(topology)
    plain.pop("misfit")
    for part in (*plain["nodes"].values(), *plain["links"]):
        part.pop("spread", None)
    return plain


@pytest.mark.slow
def test_a_run_on_a_calibrated_topology_has_the_same_interval_each_time(tmp_path: Path) -> None:
    first, again = (predicted(tmp_path / name).summary for name in "xy")
    told = first["elapsed_interval_s"]
    assert told == again["elapsed_interval_s"]
    assert first["step_interval_s"] == again["step_interval_s"]
    # 19 rounds, so 18 of the 20 places of one more lie inside, and the interval is from the least to the greatest.
    assert told["level"] == 0.9
    assert len(told["replicas"]) == 19
    assert told["low"] == min(told["replicas"]) * (1 - UNREHEARSED)
    assert told["high"] == max(told["replicas"]) * (1 + UNREHEARSED)


def test_each_replica_is_the_run_with_that_rounds_numbers_and_the_misfit(tmp_path: Path) -> None:
    told = predicted(tmp_path / "all").summary["elapsed_interval_s"]["replicas"]
    alone = predicted(tmp_path / "one", replica(load(CLUSTER), 18)).summary["elapsed_s"]
    assert told[18] == pytest.approx(1.01 * alone, rel=1e-12)
    # Three gradients of 109 ms; the rest is messages of some hundred bytes.
    assert alone == pytest.approx(3 * 0.109, rel=0.1)
    assert alone > 3 * 0.109


def test_the_run_itself_is_that_without_spread(tmp_path: Path) -> None:
    with_it, plain = predicted(tmp_path / "s"), predicted(tmp_path / "p", without_spread(CLUSTER))
    assert with_it.summary["trace_sha256"] == plain.summary["trace_sha256"]
    assert not {"elapsed_interval_s", "step_interval_s"} & plain.summary.keys()


def test_the_number_of_replicas_is_an_option(tmp_path: Path) -> None:
    assert "elapsed_interval_s" not in predicted(tmp_path / "none", replicas=0).summary
    few = predicted(tmp_path / "few", replicas=3).summary["elapsed_interval_s"]
    # Of 3 values the extremes hold the next one in 2 of 4 cases.
    assert (few["level"], len(few["replicas"])) == (0.5, 3)
    for wrong, topology, expected in (
        (1, CLUSTER, "0 for no interval, or a whole number of at least 2"),
        (5, without_spread(CLUSTER), "which has no spread"),
    ):
        with pytest.raises(UsageError, match=expected):
            predicted(tmp_path / "wrong", topology, replicas=wrong)
    assert not (tmp_path / "wrong").exists()


def test_nine_of_ten_intervals_hold_the_time_of_a_cluster_drawn_like_the_rounds() -> None:
    # A step is 0.2 s of work and 1 MB over a link. In each of 200 cases work and link have rates of their own; 19
    # rounds and then the run itself draw around them. The run is as likely in any of 20 places among the rounds, so it
    # is outside with 2/20: 20 of 200 are expected, with a deviation of sqrt(200 * 0.1 * 0.9) = 4.2.
    random, inside = np.random.default_rng(5), 0
    for _ in range(200):
        work_s, rate_Bps = 0.2 * random.lognormal(0, 0.5), 1e6 * random.lognormal(0, 0.5)
        rounds = work_s * random.lognormal(0, 0.02, 20) + 1e6 / (rate_Bps * random.lognormal(0, 0.05, 20))
        told = interval(rounds[:19])
        inside += told["low"] <= rounds[19] <= told["high"]
    assert 180 - 3 * 4.2 < inside < 180 + 3 * 4.2


@pytest.mark.slow
def test_a_calibration_carries_its_rounds_and_a_prediction_from_it_an_interval(tmp_path: Path) -> None:
    given = without_spread(CLUSTER)
    given["nodes"]["a"] = {"flops": "1 MFLOP/s", "straggler": {"kind": "lognormal", "sigma": 0.1}}
    document = calibrated_document(calibrate(given, backend="sim", workload="quadratic"))
    measured = load(document)
    assert rounds_of(measured) >= 14  # of 20, some may be far off
    factors = document["nodes"]["a"]["spread"]["profile"]
    assert min(factors) < 1 < max(factors)
    # The network is as it is said to be, so nothing of it varies.
    assert "spread" not in document["links"][0]
    told = predicted(tmp_path / "run", document).summary["elapsed_interval_s"]
    assert told["low"] < told["high"]


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (("links", 0, "spread"), {"bandwidth": [1, 0]}, "links[0].spread.bandwidth"),
        (("links", 0, "spread"), {"rate": [1, 1]}, "unknown key"),
        (("nodes", "a", "spread"), {"profile": [1]}, "a list of 2 to 1000 factors"),
        (("nodes", "a", "spread"), {"profile": [1, float("nan")]}, "a list of 2 to 1000 factors"),
        (("misfit",), [1.0, 1.0], "lists of 2 and 19 factors"),
    ],
)
def test_a_wrong_spread_is_refused(at: tuple[Any, ...], value: Any, expected: str) -> None:
    document = copy.deepcopy(CLUSTER)
    part: Any = document
    for key in at[:-1]:
        part = part[key]
    part[at[-1]] = value
    with pytest.raises(UsageError) as caught:
        load(document)
    assert expected in str(caught.value)


@pytest.mark.parametrize(("misfit", "said"), [(2.0, "explains 50 % of the measured time"), (1.1, None)])
def test_a_model_that_misses_much_of_the_time_says_so(misfit: float, said: str | None, tmp_path: Path) -> None:
    document = copy.deepcopy(CLUSTER) | {"misfit": [misfit] * 19}
    warnings = predicted(tmp_path, document).warnings
    assert [said in row["text"] for row in warnings] == ([True] if said else [])


def measured(simulated: Path, folder: Path, elapsed_s: float) -> simcluster.Run:
    """The folder of a run on sockets that took *elapsed_s*."""
    shutil.copytree(simulated, folder)
    summary = json.loads((folder / "summary.json").read_text())
    del summary["elapsed_interval_s"]
    (folder / "summary.json").write_text(json.dumps(summary | {"backend": "sockets", "elapsed_s": elapsed_s}))
    return load_run(folder)


def test_compare_says_whether_the_measured_time_lies_inside(tmp_path: Path) -> None:
    simulated = predicted(tmp_path / "sim")
    told = simulated.summary["elapsed_interval_s"]
    for name, elapsed_s, word in (("in", told["high"], "inside"), ("out", told["high"] * 1.01, "outside")):
        comparison = compare(simulated, measured(tmp_path / "sim", tmp_path / name, elapsed_s))
        assert f", which lies {word}" in comparison.describe()
        assert "with 90 %)" in comparison.describe()
        found = comparison.to_dict()["pairs"][0]["elapsed_s"]["interval"]
        assert found["inside"] == (word == "inside")
    assert compare(simulated, simulated).to_dict()["pairs"][0]["elapsed_s"]["interval"] is None


@pytest.mark.slow
def test_whatif_ranks_what_exceeds_the_uncertainty_and_names_the_rest(tmp_path: Path) -> None:
    # a's device varies by 9 % around b's, so a faster a may gain nothing: b holds every step up then. The link is the
    # bottleneck: a step sends its bytes at 20 kbit/s.
    cluster = copy.deepcopy(CLUSTER)
    cluster["links"][0]["bandwidth"] = "20 kbps"
    cluster["nodes"]["a"]["profile"] = {"quadratic/gradient": "102 ms"}
    found = simcluster.whatif(
        PLAN | {"topology": cluster}, "step-time", seeds=1, jobs=1, out=tmp_path / "w", report=False
    )
    best = found.bottleneck
    assert best is not None
    assert best.change.label == "a-b: twice the bandwidth"
    assert best.low is not None
    assert best.high is not None
    assert best.low < best.relative < best.high < 0  # type: ignore[operator]
    within = [effect.change.label for effect in found.effects if effect.is_within]
    assert "a: a device twice as fast" in within
    places = {effect.change.label: place for place, effect in enumerate(found.effects)}
    assert all(places[label] > places[best.change.label] for label in within)
