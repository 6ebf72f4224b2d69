"""A device's straggler model is read exactly, its trace from a file beside the topology; all errors come at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from simcluster.errors import UsageError
from simcluster.topology import load, loads
from simcluster.topology.model.stragglers import (
    Constant,
    Exponential,
    Lognormal,
    Markov,
    Pareto,
    ShiftedExponential,
    Straggler,
    Thermal,
    Trace,
    TwoPoint,
)
from tests.support.clusters import device_of, problems_of, read_device, topology_with_trace


@pytest.mark.parametrize(
    ("written", "straggler", "mean_factor"),
    [
        ("{kind: constant, factor: 10}", Constant(10.0), 10.0),
        ("{factor: 2}", Constant(2.0), 2.0),
        ("{kind: lognormal, sigma: 0.5}", Lognormal(0.5), 1.0),
        ("{kind: exponential}", Exponential(1.0), 1.0),
        ("{kind: exponential, mean: 3}", Exponential(3.0), 3.0),
        ("{kind: shifted-exponential, mean: 0.5}", ShiftedExponential(0.5, 1.0), 1.5),
        ("{kind: shifted-exponential, mean: 0.5, shift: 0}", ShiftedExponential(0.5, 0.0), 0.5),
        # 2 * 3 / (3 - 1)
        ("{kind: pareto, shape: 3, minimum: 2}", Pareto(3.0, 2.0), 3.0),
        ("{kind: pareto, shape: 3}", Pareto(3.0, 1.0), 1.5),
        # 0.1 * 10 + 0.9 * 1
        ("{kind: two-point, probability: 0.1, factor: 10}", TwoPoint(10.0, 0.1), 1.9),
        # slow for a quarter of the time: 0.25 * 5 + 0.75
        ("{kind: markov, factor: 5, slow: 1 s, fast: 3 s}", Markov(5.0, 1.0, 3.0), 2.0),
        ("{kind: thermal, factor: 2, heating: 1 min, cooling: 90 s}", Thermal(2.0, 60.0, 90.0), 2.0),
        # 1 for 2 s, 4 for 1 s: 6/3
        ("{kind: trace, factors: {0 s: 1, 2 s: 4, 3 s: 1}}", Trace(((0.0, 1.0), (2.0, 4.0), (3.0, 1.0))), 2.0),
        ("{kind: trace, factors: {0 s: 7}}", Trace(((0.0, 7.0),)), 7.0),
    ],
)
def test_straggler_kinds_are_read(written: str, straggler: Straggler, mean_factor: float) -> None:
    device = read_device(f"device: raspberry-pi-4, straggler: {written}")
    assert device.straggler == straggler
    assert straggler.mean_factor == pytest.approx(mean_factor, rel=1e-12)
    assert str(straggler) in str(device)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{kind: constant}", "straggler.factor: found nothing, expected a number above zero"),
        ("{kind: constant, factor: 0}", "found 0, expected a number above zero"),
        ("{kind: constant, factor: .inf}", "found inf"),
        ("{kind: constant, factor: fast}", "found 'fast'"),
        (
            "{kind: constant, factor: 2, sigma: 1}",
            "straggler.sigma: found it with kind constant, expected factor",
        ),
        ("{kind: lognormal, sigma: -1}", "found -1, expected a number from 0 to 10"),
        ("{kind: two-point, probability: 1.5, factor: 2}", "found 1.5, expected a number from 0 to 1"),
        ("{kind: log-normal, sigma: 1}", "did you mean 'lognormal'?"),
        ("{kind: constant, factr: 2, factor: 2}", "straggler.factr: unknown key"),
        ("10", "found 10, expected a mapping"),
        ("{kind: shifted-exponential, mean: 1, shift: -1}", "straggler.shift: found -1, expected a number, 0 or above"),
        ("{kind: shifted-exponential}", "straggler.mean: found nothing, expected a number above zero"),
        ("{kind: pareto, shape: 1}", "straggler.shape: found 1, expected a number above 1: else the mean is infinite"),
        ("{kind: pareto, shape: 2, minimum: 0}", "straggler.minimum: found 0"),
        ("{kind: markov, factor: 2, slow: 1 s, fast: 0 s}", "straggler.fast: found '0 s', which is zero"),
        (
            "{kind: markov, factor: 2, slow: 1 us, fast: 1 s}",
            "slow: found '1 us', expected a time with its unit, at least 10 us",
        ),
        ("{kind: markov, factor: 2, slow: 1, fast: 1 s}", "straggler.slow: found 1 without a unit"),
        ("{kind: thermal, factor: 2, heating: 1 s}", "straggler.cooling: found nothing, expected a time with its unit"),
        ("{kind: trace}", "straggler: found neither, expected either file or factors"),
        ("{kind: trace, file: x.csv, factors: {0 s: 1}}", "straggler: found both, expected either file or factors"),
        ("{kind: trace, file: 3}", "straggler.file: found 3, expected the path of a file"),
        ("{kind: trace, factors: {}}", "straggler.factors: found an empty mapping, expected a mapping of times"),
        ("{kind: trace, factors: {1 s: 2}}", "found '1 s', expected 0 first"),
        ("{kind: trace, factors: {0 s: 2, 5 s: 1, 5000 ms: 3}}", "found '5000 ms', expected a time after 5 s"),
        ("{kind: trace, factors: {0: 2}}", "found '0' without a unit"),
        ("{kind: trace, factors: {0 s: -2}}", "straggler.factors.0 s: found -2, expected a number above zero"),
    ],
)
def test_only_what_a_straggler_kind_uses_is_accepted(written: str, words: str) -> None:
    (problem,) = problems_of(f"device: raspberry-pi-4, straggler: {written}")
    assert words in problem


def test_all_that_is_wrong_with_a_straggler_is_said_at_once() -> None:
    problems = problems_of("device: raspberry-pi-4, straggler: {kind: markov, factor: 0, slow: 1, sigma: 3, what: 1}")
    found = {problem.partition("straggler.")[2].partition(":")[0] for problem in problems}
    assert found == {"factor", "slow", "sigma", "what", "fast"}
    assert len(problems) == 5


# traces from files


def test_a_trace_lies_beside_the_topology_and_travels_inside_its_document(tmp_path: Path) -> None:
    path = topology_with_trace(tmp_path, "# measured on Sunday\ntime_s,factor\n0,1\n\n2.5, 4\n3,1.5\n")
    topology = load(path)
    assert device_of(topology).straggler == Trace(((0.0, 1.0), (2.5, 4.0), (3.0, 1.5)))
    (tmp_path / "pi4.csv").unlink()
    assert loads(yaml.safe_dump(topology.document)) == loads(json.loads(json.dumps(topology.document)))
    assert device_of(loads(topology.document)) == device_of(topology)


@pytest.mark.parametrize(
    ("csv", "places"),
    [
        ("time_s,factor\n0,1\n2,0\n1,x\n3\n", ["pi4.csv:3", "pi4.csv:4", "pi4.csv:5"]),
        ("seconds,factor\n0,1\n", ["pi4.csv:1"]),
        ("", ["pi4.csv: trace"]),
        ("time_s,factor\n", ["pi4.csv: trace: found no rows"]),
        ("time_s,factor\n1,2\n", ["pi4.csv:2: trace: found '1,2', expected 0 first"]),
        ("time_s,factor\n0,2\n5,1\n5,3\n", ["pi4.csv:4: trace: found '5,3', expected a time after 5 s"]),
        ("time_s,factor\n0,inf\n", ["pi4.csv:2: trace: found '0,inf', expected finite numbers"]),
    ],
)
def test_everything_wrong_in_a_trace_is_told_with_its_file_and_line(
    tmp_path: Path, csv: str, places: list[str]
) -> None:
    with pytest.raises(UsageError) as error:
        load(topology_with_trace(tmp_path, csv))
    problems = [str(problem) for problem in error.value.problems]
    assert len(problems) == len(places)
    for problem, place in zip(problems, places, strict=True):
        assert place in problem


def test_a_trace_that_is_not_there_is_an_error_and_so_is_one_of_endless_faults(tmp_path: Path) -> None:
    path = topology_with_trace(tmp_path, "time_s,factor\n" + "x\n" * 100)
    with pytest.raises(UsageError) as error:
        load(path)
    assert len(error.value.problems) == 21
    assert "80 more wrong rows" in str(error.value.problems[-1])
    (tmp_path / "pi4.csv").unlink()
    with pytest.raises(UsageError, match=r"pi4\.csv.*No such file"):
        load(path)
    topology_with_trace(tmp_path, "time_s,factor\n" + "".join(f"{row},2\n" for row in range(10_001)))
    with pytest.raises(UsageError, match="found 10001 rows, expected at most 10000"):
        load(path)


def test_a_trace_named_on_the_command_line_starts_where_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.csv").write_text("time_s,factor\n0,3\n")
    path = topology_with_trace(tmp_path, "time_s,factor\n0,2\n")
    monkeypatch.chdir(tmp_path / "here")
    assert device_of(load(path)).straggler == Trace(((0.0, 2.0),))
    one = load(path, overrides={"nodes.a.straggler.file": "mine.csv"})
    whole = load(path, overrides={"nodes.a.straggler": "{kind: trace, file: mine.csv}"})
    assert device_of(one).straggler == device_of(whole).straggler == Trace(((0.0, 3.0),))


def test_a_trace_in_an_experiment_lies_beside_the_experiment(tmp_path: Path) -> None:
    from simcluster.experiment.read.read import read_experiment

    topology_with_trace(tmp_path, "time_s,factor\n0,2\n")
    (tmp_path / "e.yaml").write_text(
        "topology: {nodes: {a: {device: raspberry-pi-4, straggler: {kind: trace, file: pi4.csv}}}}\n"
        "algorithm: all_reduce_dp\nworkload: quadratic\nstop: {steps: 1}\n"
    )
    assert device_of(read_experiment(tmp_path / "e.yaml").topology).straggler == Trace(((0.0, 2.0),))
