"""The `faults` of an experiment file: twelve kinds, their spells of time, and all errors at once with their lines."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment import read_experiment
from simcluster.fault_plans.keys import KINDS
from simcluster.fault_plans.kinds import (
    Bandwidth,
    Crash,
    Cut,
    Fault,
    Flap,
    Hang,
    Join,
    Latency,
    Leave,
    Loss,
    Partition,
    Restart,
    Slow,
)

EXPERIMENT: dict[str, Any] = {
    "topology": {
        "name": "three",
        "nodes": {"a": {"device": "x86-laptop"}, "b": {"device": "x86-laptop"}, "c": {"device": "x86-laptop"}},
        "links": [
            {"between": ["a", "b"], "type": "ethernet-1g"},
            {"between": ["b", "c"], "bandwidth": "100 Mbps", "latency": "1 ms", "duplex": "half"},
        ],
    },
    "algorithm": "edp",
    "workload": "quadratic",
    "stop": {"steps": 3},
}


def read(*faults: Any, seed: int = 0) -> tuple[Fault, ...]:
    return read_experiment({**EXPERIMENT, "faults": list(faults), "seed": seed}).faults


def problems_of(*faults: Any) -> list[str]:
    with pytest.raises(UsageError) as error:
        read(*faults)
    return [str(problem) for problem in error.value.problems]


@pytest.mark.parametrize(
    ("algorithm", "workload"), [("pipeline", "mnist_mlp"), ("tensor_parallel", "mnist_mlp"), ("zero", "quadratic")]
)
def test_a_fault_at_a_step_of_a_rank_that_records_no_losses_begins(
    algorithm: str, workload: str, tmp_path: Path
) -> None:
    # Rank 0 has the whole weights, and so records, only at step 9.
    settings = {"stage": 3} if algorithm == "zero" else {}
    source = {
        "topology": {"generator": "star", "workers": 2},
        "algorithm": {"name": algorithm} | settings,
        "workload": workload,
        "stop": {"steps": 9},
        "numerics": "none",
    }
    plain = simcluster.run(source, out=tmp_path / "plain", report=False).summary
    hang = {"kind": "hang", "node": "n0", "at_step": 3, "for": "1 s"}
    run = simcluster.run(source | {"faults": [hang]}, out=tmp_path / "run", report=False).summary
    ((began_s, ended_s),) = run["faults"][0]["spells_s"]
    assert plain["elapsed_s"] / 4 < began_s < plain["elapsed_s"] / 2
    assert ended_s == began_s + 1
    assert run["elapsed_s"] > 1


def test_every_kind_is_read_with_its_keys() -> None:
    assert read(
        {"kind": "crash", "node": "b", "at": "1 s"},
        {"kind": "restart", "node": "b", "at": "1 s", "after": "500 ms"},
        {"kind": "join", "node": "c", "at": "2 s"},
        {"kind": "leave", "node": "c", "at": "3 s"},
        {"kind": "leave", "node": "a", "at": "3 s", "notice": "500 ms"},
        {"kind": "hang", "node": "c", "at": "1 s", "for": "2 s"},
        {"kind": "slow", "node": "a", "at": "0 s", "factor": 10},
        {"kind": "cut", "link": "a-b", "at": "2 s", "for": "500 ms"},
        {"kind": "flap", "link": "a-b", "at": "1 s", "for": "1 s", "period": "400 ms", "down": 0.25},
        {"kind": "partition", "groups": [["a", "b"], ["c"]], "at": "1 s", "for": "1 s"},
        {"kind": "latency", "link": "a-b", "towards": "b", "at": "1 s", "for": "1 s", "add": "20 ms"},
        {"kind": "bandwidth", "link": "b-c", "at": "1 s", "for": "1 s", "factor": 0.1},
        {"kind": "loss", "link": "b-c", "at": "1 s", "for": "1 s", "probability": 0.02},
    ) == (
        Crash(spells=((1.0, inf),), rank=1),
        Restart(spells=((1.0, 1.5),), rank=1),
        Join(spells=((0.0, 2.0),), rank=2),
        Leave(spells=((3.0, 33.0),), rank=2),
        Leave(spells=((3.0, 3.5),), rank=0),
        Hang(spells=((1.0, 3.0),), rank=2),
        Slow(spells=((0.0, inf),), rank=0, factor=10),
        Cut(spells=((2.0, 2.5),), link="a-b"),
        # Down for the first quarter of each 400 ms; the last period has 200 ms left.
        Flap(spells=((1.0, 1.1), (1.4, 1.5), (1.8, 1.9000000000000001)), link="a-b"),
        Partition(spells=((1.0, 2.0),), groups=((0, 1), (2,))),
        Latency(spells=((1.0, 2.0),), link="a-b", towards="b", extra_s=0.02),
        Bandwidth(spells=((1.0, 2.0),), link="b-c", factor=0.1),
        Loss(spells=((1.0, 2.0),), link="b-c", probability=0.02),
    )


def test_a_link_may_be_named_from_either_end() -> None:
    assert read({"kind": "cut", "link": "b-a", "at": "1 s"}) == read({"kind": "cut", "link": "a-b", "at": "1 s"})


def test_a_fault_may_come_again_and_again() -> None:
    (hang,) = read({"kind": "hang", "node": "a", "at": "1 s", "for": "250 ms", "every": "500 ms", "times": 3})
    assert hang.spells == ((1.0, 1.25), (1.5, 1.75), (2.0, 2.25))


def test_spells_that_overlap_are_one() -> None:
    (slow,) = read({"kind": "slow", "node": "a", "factor": 2, "at": "1 s", "for": "1 s", "every": "500 ms", "times": 3})
    assert slow.spells == ((1.0, 3.0),)


def test_random_times_depend_on_the_seed_and_on_nothing_else() -> None:
    fault = {"kind": "cut", "link": "a-b", "at": "1 s", "for": "1 ms", "mean_every": "2 s", "times": 2000}
    ((first,), (again,), (other,)) = read(fault), read(fault), read(fault, seed=1)
    assert first == again
    assert first != other
    assert first.spells[0] == other.spells[0] == (1.0, 1.001)
    starts = [start_s for start_s, _ in first.spells]
    # The mean of 1999 exponential gaps of 2 s has a deviation of 2 s / sqrt(1999), 2.2 %: five of them are 11 %.
    assert (starts[-1] - 1.0) / 1999 == pytest.approx(2.0, rel=0.12)
    (_, second) = read({"kind": "crash", "node": "c", "at": "9 s"}, fault)
    assert second.spells != first.spells, "two faults of one plan draw from streams of their own"


def test_all_that_is_wrong_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "topology: thunderbolt-mesh-4\n"
        "algorithm: edp\n"
        "workload: quadratic\n"
        "stop: {steps: 3}\n"
        "faults:\n"
        "  - {kind: crsh, node: mini1, at: 1 s}\n"
        "  - {kind: crash, node: mini9, at: 1 s}\n"
        "  - {kind: hang, node: mini1, at: 1}\n"
        "  - {kind: slow, node: mini1, at: 1 s, factor: 0.5, fro: 3 s}\n"
        "  - {kind: cut, link: mini1-mini9, at: 1 s, for: 0 s}\n"
        "  - {kind: cut, link: mini1-mini2, towards: mini3, at: 1 s, every: 2 s, times: 0}\n"
        "  - {kind: partition, groups: [[mini1], [mini1, mini7]], at: 1 s}\n"
        "  - {kind: flap, link: mini1-mini2, at: 1 s, for: 1 s, down: 2}\n"
        "  - {kind: latency, link: mini1-mini2}\n"
        "  - [crash]\n"
        "  - {node: mini1, at: 1 s}\n"
        "  - {kind: loss, link: mini1-mini2, at: 1 s, probability: 0.99999}\n"
    )
    with pytest.raises(UsageError) as error:
        read_experiment(path)
    found = [(problem.line, problem.key, problem.expected) for problem in error.value.problems]
    for line, key, words in [
        (6, "faults[0].kind", "did you mean 'crash'?"),
        (7, "faults[1].node", "a worker: did you mean"),
        (8, "faults[2].at", "a time with its unit"),
        (9, "faults[3].factor", "a number above 1"),
        (9, "faults[3].fro", "did you mean 'for'?"),
        (10, "faults[4].link", "a link: did you mean"),
        (10, "faults[4].for", "a time above zero"),
        (11, "faults[5].towards", "an end of that link: mini1 or mini2"),
        (11, "faults[5].for", "the duration of each of them"),
        (11, "faults[5].times", "a whole number from 1"),
        (12, "faults[6].groups[1][0]", "every node in one group at most"),
        (12, "faults[6].groups[1][1]", "a worker: did you mean"),
        (13, "faults[7].period", "a time, like 500 ms"),
        (13, "faults[7].down", "a number above 0 and below 1"),
        (14, "faults[8].add", "the time that every message takes longer"),
        (14, "faults[8].at", "the time of the first one"),
        (15, "faults[9]", "a fault like {kind: crash, node: NAME, at: TIME}"),
        (16, "faults[10].kind", "a kind of fault: one of bandwidth, crash, cut"),
        (17, "faults[11].probability", "a share of packets above 0, at most 0.9 (each further try of a packet"),
    ]:
        assert any(at == line and where == key and words in expected for at, where, expected in found), (line, key)
    assert len(found) == 19, found


def test_one_way_of_a_shared_medium_cannot_be_narrower_than_the_other() -> None:
    (problem,) = problems_of({"kind": "bandwidth", "link": "b-c", "towards": "c", "at": "1 s", "factor": 0.5})
    assert "half duplex is one medium" in problem
    assert read({"kind": "cut", "link": "b-c", "towards": "c", "at": "1 s"}), "but may be deaf"


def test_a_flap_of_more_periods_than_anybody_means_is_refused() -> None:
    (problem,) = problems_of({"kind": "flap", "link": "a-b", "at": "0 s", "for": "1 h", "period": "1 ms"})
    assert "at most 10000" in problem


def test_a_node_joins_once() -> None:
    join = {"kind": "join", "node": "a", "at": "1 s"}
    (problem,) = problems_of(join, {"kind": "crash", "node": "a", "at": "1 s"}, {**join, "at": "2 s"})
    assert "faults[2].node" in problem
    assert "a node that joins once" in problem
    assert len(read(join, {**join, "node": "b"})) == 2


def test_times_and_gaps_go_together() -> None:
    hang = {"kind": "hang", "node": "a", "at": "1 s", "for": "1 s"}
    assert "times: found nothing" in problems_of({**hang, "every": "2 s"})[0]
    assert "every or mean_every, one of them" in problems_of({**hang, "times": 2})[0]
    assert (
        "every or mean_every, one of them" in problems_of({**hang, "times": 2, "every": "1 s", "mean_every": "1 s"})[0]
    )


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_without_any_of_its_keys_says_what_it_lacks_and_never_fails_otherwise(kind: str) -> None:
    found = problems_of({"kind": kind})
    assert any("faults[0].at" in problem for problem in found)
    required = {"crash", "restart", "join", "leave", "hang", "slow"}
    assert any("faults[0].node" in problem for problem in found) == (kind in required)


@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, [1], {"a": 1}, True, -1.5, float("nan")])
@pytest.mark.parametrize("key", ["at", "for", "node", "link", "groups", "towards", "factor", "every", "period", "add"])
def test_no_value_of_any_key_breaks_the_reader(key: str, junk: Any) -> None:
    for kind in KINDS:
        with suppress(UsageError):
            read({"kind": kind, "node": "a", "link": "a-b", "at": "1 s", key: junk})


def test_faults_that_are_no_list_are_an_error_of_their_own() -> None:
    with pytest.raises(UsageError, match="a list of faults"):
        read_experiment({**EXPERIMENT, "faults": {"kind": "crash"}})
