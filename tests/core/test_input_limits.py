"""Extreme and hostile inputs: each is refused in a sentence, before memory or time is taken for it."""

from __future__ import annotations

import copy
import cProfile
import gc
import io
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.documents.limits import MOST_STEPS, MOST_WHOLE
from simcluster.documents.yaml import describe
from simcluster.errors import MOST_PROBLEMS, MOST_TEXT, Problem, UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.fault_plans.read import FAULTS_LIMIT, SPELLS_IN_ALL_LIMIT
from simcluster.lab.bench.collective import bench_collective
from simcluster.lab.bench.simulator import bench_simulator
from simcluster.lab.sweeps.axes import read_axes
from simcluster.process.terminal import VisibleStream, visible
from simcluster.spelling import nearest
from simcluster.topology import load, star

COMMAND = Path(sys.executable).with_name("simcluster")
SMALL = {
    "topology": {"generator": "star", "workers": 3, "bandwidth": "1 Gbps"},
    "algorithm": "edp",
    "workload": "quadratic",
    "stop": {"steps": 3},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"generator": "star", "workers": 1_000_000_000},
            "found 1000000000, expected a whole number of at most 1048576",
        ),
        ({"generator": "star", "workers": 10**23}, "expected a whole number of at most 1048576"),
        ({"generator": "chain", "workers": -(10**23)}, "expected a whole number of at most 1048576"),
        ({"generator": "complete", "workers": 10_000}, "expected at most 2097152 links"),
        ({"generator": "torus", "rows": 10**6, "columns": 10**6}, "expected at most 1048576 workers"),
        ({"generator": "two_sites", "workers_a": 2**20, "workers_b": 1}, "expected at most 1048576"),
        ({"generator": "star", "workers": 2, "bandwidth": "1e-320 Gbps"}, "from 1e-18 to 1e\\+30"),
        ({"generator": "star", "workers": 2, "latency": "1e-300 ns"}, "from 1e-18 to 1e\\+30"),
    ],
)
def test_a_cluster_too_large_or_too_slow_to_compute_with_is_refused_before_it_is_made(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        load(change)


def test_a_link_or_a_device_has_a_quantity_that_can_be_computed_with() -> None:
    document = copy.deepcopy(star(2).document)
    document["links"][0]["bandwidth"] = "1e-300 bps"  # type: ignore[index]
    document["nodes"]["n0"] = {"flops": "1e290 PFLOP/s"}  # type: ignore[index]
    with pytest.raises(UsageError) as refused:
        load(document)
    assert [problem.key for problem in refused.value.problems] == ["nodes.n0.flops", "links[0].bandwidth"]


def test_a_generator_whose_bandwidth_is_null_has_its_default() -> None:
    assert load({"generator": "star", "workers": 2, "bandwidth": None}).links == star(2).links


@pytest.mark.parametrize("backend", ["sim", "sockets", "torch"])
@pytest.mark.parametrize("value", [0, 0.0, -1, float("nan"), float("inf"), 10**400, True])
def test_no_backend_takes_a_node_for_dead_after_no_time_or_never(backend: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="dead_s: found"):
        simcluster.run(SMALL, backend=backend, options={"dead_s": value}, out=tmp_path / "run", report=False)
    assert not (tmp_path / "run").exists()


def test_own_code_is_a_python_file() -> None:
    with pytest.raises(UsageError, match=r"algorithm\.path: found '/etc/passwd:f', expected .* ends in \.py"):
        read_experiment(SMALL | {"algorithm": {"path": "/etc/passwd:f"}})


@pytest.mark.parametrize("key", ["topology", "algorithm", "workload"])
def test_a_path_that_is_too_long_for_a_file_is_no_file(key: str) -> None:
    long = "x" * 100_000
    with pytest.raises(UsageError):
        read_experiment(SMALL | {key: long if key == "topology" else {"path": f"{long}.py:f"}})
    with pytest.raises(UsageError):
        read_experiment(long)


# faults


def with_faults(*faults: dict[str, Any]) -> dict[str, Any]:
    return SMALL | {"faults": list(faults)}


def calls_to_read(count: int, fault: dict[str, Any]) -> int:
    """How many functions are called to read *count* faults like *fault* on a cluster of 300."""
    experiment = with_faults(*[fault] * count)
    experiment["topology"] = {"generator": "star", "workers": 300}
    profile = cProfile.Profile()
    gc.collect()
    gc.disable()  # what is collected meanwhile would be counted: it is of tests before this one
    try:
        with profile, suppress(UsageError):
            read_experiment(experiment)
    finally:
        gc.enable()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["join", "cut"])
def test_the_work_of_reading_faults_rises_with_their_number_alone(kind: str) -> None:
    where = {"node": "n1"} if kind == "join" else {"link": "n1-sw"}
    fault = {"kind": kind, "at": "1 ms", **where}
    _, few, more, most = (calls_to_read(count, fault) for count in (2, 50, 100, 150))  # the first one imports
    assert (most - more) < 1.2 * (more - few)
    assert (more - few) / 50 < 400


@pytest.mark.slow
def test_the_number_of_faults_and_of_their_spells_is_limited() -> None:
    crash = {"kind": "crash", "node": "n1", "at": "1 ms"}
    with pytest.raises(UsageError, match=f"expected at most {FAULTS_LIMIT} faults"):
        read_experiment(with_faults(*[crash] * (FAULTS_LIMIT + 1)))
    often = {"kind": "hang", "node": "n1", "at": "1 ms", "for": "1 us", "every": "1 s", "times": 10_000}
    with pytest.raises(UsageError, match=f"at most {SPELLS_IN_ALL_LIMIT} times in all"):
        read_experiment(with_faults(*[often] * (SPELLS_IN_ALL_LIMIT // 10_000 + 1)))


def test_a_file_in_which_everything_is_wrong_is_given_up_after_a_while() -> None:
    with pytest.raises(UsageError) as refused:
        read_experiment(with_faults(*[{"kind": "crsh"}] * 5000))
    assert MOST_PROBLEMS < len(refused.value.problems) < MOST_PROBLEMS + 10


def test_a_second_join_of_a_node_is_still_refused() -> None:
    join = {"kind": "join", "node": "n1", "at": "1 ms"}
    with pytest.raises(UsageError, match=r"faults\[1\].node: .*joins once"):
        read_experiment(with_faults(join, join))


# words


def test_what_is_found_is_shortened_and_what_may_be_meant_is_listed_in_part() -> None:
    assert len(str(Problem("k" * 10**6, "f" * 10**6, "e" * 10**6, "f" * 10**6))) < 5 * MOST_TEXT
    assert nearest("zz", (f"n{number}" for number in range(10**6))).endswith(", ...")
    assert describe(1 << 10**6) == "a number of thousands of digits"


def test_every_character_that_changes_a_terminal_is_written_out() -> None:
    assert visible("a\tb\nü 漢 😀") == "a\tb\nü 漢 😀"
    assert visible("\x1b[31m\r\a\x7f\x9b\u202e\u2028\udc80\0") == r"\x1b[31m\r\x07\x7f\x9b\u202e\u2028\udc80\x00"


def test_a_visible_stream_is_the_stream_that_it_wraps_in_all_else() -> None:
    raw = io.StringIO()
    stream = VisibleStream(raw)
    print("a\x1b[31m", file=stream)  # type: ignore[call-overload]
    stream.writelines(["b\r", "c\n"])
    assert raw.getvalue() == "a\\x1b[31m\nb\\rc\n"
    assert (stream.isatty(), stream.closed) == (False, False)


OWN = """
async def raises(node, replica):
    print("printed \\x1b[32m")
    raise ValueError("red \\x1b[31m text")
"""


@pytest.mark.slow
def test_an_error_of_own_code_does_not_colour_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "x.yaml").write_text(
        "topology: {generator: star, workers: 2}\nalgorithm: {path: 'own.py:raises'}\n"
        "workload: quadratic\nstop: {steps: 2}\n"
    )
    command = [COMMAND, "run", "x.yaml", "--no-report", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert done.returncode == 1
    assert rb"red \x1b[31m text" in done.stderr
    assert rb"printed \x1b[32m" in done.stdout
    assert b"\x1b" not in done.stdout + done.stderr


# counts


@pytest.mark.parametrize("value", [10**20, 10**400])
@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("stop.steps", MOST_STEPS),
        ("stop.epochs", MOST_STEPS),
        ("evaluate_every", MOST_STEPS),
        ("checkpoint.every", MOST_STEPS),
        ("checkpoint.keep", MOST_STEPS),
        ("seed", MOST_WHOLE),
        ("algorithm.pull_interval", MOST_WHOLE),
        ("workload.data_seed", MOST_WHOLE),
    ],
)
def test_a_count_has_a_limit_that_is_named(key: str, most: int, value: int) -> None:
    experiment = copy.deepcopy(SMALL) | {"algorithm": {"name": "edp"}, "workload": {"name": "quadratic"}}
    experiment |= {"checkpoint": {"every": 1}, "stop": {} if "stop" in key else {"steps": 3}}
    with pytest.raises(UsageError) as refused:
        read_experiment(experiment, {key: value})
    (problem,) = refused.value.problems
    assert problem.key.startswith(key)
    assert str(most) in problem.expected


def test_epochs_are_limited_by_their_steps() -> None:
    with pytest.raises(UsageError, match=rf"stop.epochs: .* steps, expected at most {MOST_STEPS} steps"):
        read_experiment(SMALL | {"stop": {"epochs": MOST_STEPS}})


@pytest.mark.parametrize("end", ["1000000000", "1" + "0" * 30, "-1" + "0" * 30])
def test_a_sweep_of_too_many_values_is_refused_before_they_are_made(end: str) -> None:
    with pytest.raises(UsageError, match="values, expected 1 to 100,000"):
        read_axes([f"seed=range({end})"])


@pytest.mark.parametrize("many", [0, 10**9, 10**30])
def test_seeds_jobs_and_bytes_have_limits(many: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"seeds: found {many}, expected 1 to 1000"):
        simcluster.whatif(SMALL, "step-time", seeds=many, out=tmp_path / "a")
    for ask in (partial(simcluster.whatif, goal="step-time"), partial(simcluster.sweep, values={"seed": [1]})):
        with pytest.raises(UsageError, match=f"jobs: found {many}, expected 1 to 1024"):
            ask(SMALL, jobs=many, out=tmp_path / "a")
    with pytest.raises(UsageError, match=r"at least 1\n--bytes: found 1.*0, expected at most"):
        bench_simulator(0, 10**30)
    with pytest.raises(UsageError, match=r"--bytes: found 1.*0, expected at most"):
        bench_collective("all_reduce", "ring", star(2), 10**30, {})
    assert not list(tmp_path.iterdir())
