"""What each algorithm makes of each fault: the table of docs/faults.md, in the simulator and on real nodes.

Three nodes on a star; n0 serves, n2 is hit, or its link, or n0 or its link.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import PeerLost
from simcluster.results import load_run
from simcluster.topology import star
from tests.support.levels import sample_of
from tests.support.root import ROOT

ALGORITHMS = ("sync_ps", "edp", "all_reduce_dp")

DEAD_S = {"sim": 0.05, "sockets": 2.0}
"""Where nothing is to be lost real nodes have a minute, since a busy machine may hold them up for seconds."""
AT = {"sim": "5 ms", "sockets": "300 ms"}
EVERY = {"sim": "1 ms", "sockets": "20 ms"}
SHORT = {"sim": "10 ms", "sockets": "400 ms"}
"""Shorter than DEAD_S."""

GOES_ON, ALL_END_WELL, FAILS, RE_FORMS = "goes on", "all end well", "fails", "re-forms"
"""The run is done without the one that was hit; the run is done with everybody; it fails with a PeerLost; those left
form a group anew, to which one that comes back is let in."""

FAULTS: dict[str, dict[str, Any]] = {
    "crash of a worker": {"kind": "crash", "node": "n2"},
    "crash of the server": {"kind": "crash", "node": "n0"},
    "restart of a worker": {"kind": "restart", "node": "n2", "after": "SHORT"},
    "restart of the server": {"kind": "restart", "node": "n0", "after": "SHORT"},
    "short hang": {"kind": "hang", "node": "n2", "for": "SHORT"},
    "long hang of a worker": {"kind": "hang", "node": "n2"},
    "long hang of the server": {"kind": "hang", "node": "n0"},
    "slow-down": {"kind": "slow", "node": "n2", "factor": 5},
    "short cut": {"kind": "cut", "link": "n2-sw", "for": "SHORT"},
    "long cut of a worker": {"kind": "cut", "link": "n2-sw"},
    "long cut of the server": {"kind": "cut", "link": "n0-sw"},
    "short cut, one way": {"kind": "cut", "link": "n2-sw", "towards": "n2", "for": "SHORT"},
    "long cut, towards a worker": {"kind": "cut", "link": "n2-sw", "towards": "n2"},
    "long cut, from a worker": {"kind": "cut", "link": "n2-sw", "towards": "sw"},
    "flap": {"kind": "flap", "link": "n2-sw", "for": "SHORT", "period": "2 ms"},
    "short partition": {"kind": "partition", "groups": [["n0", "n1"], ["n2"]], "for": "SHORT"},
    "long partition": {"kind": "partition", "groups": [["n0", "n1"], ["n2"]]},
    "reset": {"kind": "reset", "groups": [["n0", "n1"], ["n2"]], "every": "EVERY", "times": 40},
    "latency": {"kind": "latency", "link": "n2-sw", "for": "SHORT", "add": "2 ms"},
    "bandwidth": {"kind": "bandwidth", "link": "n2-sw", "for": "SHORT", "factor": 0.01},
    "loss": {"kind": "loss", "link": "n2-sw", "for": "SHORT", "probability": 0.3},
}

OUTCOMES: dict[str, tuple[str, str, str]] = {  # sync_ps, edp, all_reduce_dp
    "crash of a worker": (GOES_ON, GOES_ON, RE_FORMS),
    "crash of the server": (FAILS, FAILS, RE_FORMS),
    "restart of a worker": (ALL_END_WELL, ALL_END_WELL, RE_FORMS),
    "restart of the server": (FAILS, FAILS, RE_FORMS),
    "short hang": (ALL_END_WELL, ALL_END_WELL, ALL_END_WELL),
    "long hang of a worker": (GOES_ON, GOES_ON, RE_FORMS),
    "long hang of the server": (FAILS, FAILS, RE_FORMS),
    "slow-down": (ALL_END_WELL, ALL_END_WELL, ALL_END_WELL),
    "short cut": (ALL_END_WELL, ALL_END_WELL, ALL_END_WELL),
    "long cut of a worker": (GOES_ON, GOES_ON, RE_FORMS),
    "long cut of the server": (GOES_ON, GOES_ON, RE_FORMS),
    "short cut, one way": (ALL_END_WELL, ALL_END_WELL, ALL_END_WELL),
    "long cut, towards a worker": (GOES_ON, GOES_ON, RE_FORMS),
    "long cut, from a worker": (GOES_ON, GOES_ON, RE_FORMS),
    "flap": (ALL_END_WELL, ALL_END_WELL, ALL_END_WELL),
    "short partition": (ALL_END_WELL, ALL_END_WELL, ALL_END_WELL),
    "long partition": (GOES_ON, GOES_ON, RE_FORMS),
    "reset": (ALL_END_WELL, ALL_END_WELL, ALL_END_WELL),
    "latency": (ALL_END_WELL, ALL_END_WELL, ALL_END_WELL),
    "bandwidth": (ALL_END_WELL, ALL_END_WELL, ALL_END_WELL),
    "loss": (ALL_END_WELL, ALL_END_WELL, ALL_END_WELL),
}

ON_SOCKETS: dict[str, tuple[str, ...]] = {
    "crash of a worker": ALGORITHMS,
    "restart of a worker": ("edp", "all_reduce_dp"),
    "short hang": ("sync_ps", "all_reduce_dp"),
    "long hang of a worker": ("sync_ps", "all_reduce_dp"),
    "slow-down": ("edp",),
    "short cut": ("sync_ps", "edp"),
    "reset": ("sync_ps", "all_reduce_dp"),
    "long cut of a worker": ("edp", "all_reduce_dp"),
    "long cut, towards a worker": ("sync_ps",),
}
"""With which of them; `make outcomes` has all algorithms, and what hits a node."""


def experiment(algorithm: str, fault: str, backend: str) -> dict[str, Any]:
    # A run on real nodes lasts as long as it takes to be hit; one in the simulator has as many steps as that needs.
    all_pass = set(OUTCOMES[fault]) == {ALL_END_WELL}
    until = "1.5 s" if all_pass else {"crash": "2 s", "restart": "4 s"}.get(FAULTS[fault]["kind"], "3.5 s")
    stop = {"sim": {"steps": 40}, "sockets": {"steps": 100_000, "time": until}}[backend]
    times = {"SHORT": SHORT[backend], "EVERY": EVERY[backend]}
    spec = {key: times[value] if value in ("SHORT", "EVERY") else value for key, value in FAULTS[fault].items()}
    return {
        "name": "outcomes",
        "topology": star(3, device="raspberry-pi-4", bandwidth="1 Mbps", latency="100 us").document,
        "algorithm": algorithm,
        "workload": {"name": "quadratic", "batch_size": 8},
        "stop": stop,
        "faults": [{**spec, "at": AT[backend]}],
    }


def run(algorithm: str, fault: str, backend: str, folder: Path) -> tuple[dict[str, Any], PeerLost | None]:
    """(summary, error) of one run, whether it failed or not."""
    short = backend == "sockets" and set(OUTCOMES[fault]) == {ALL_END_WELL}
    options = {"dead_s": 60.0 if short else DEAD_S[backend]}
    plan, error = experiment(algorithm, fault, backend), None
    try:
        simcluster.run(plan, backend=backend, out=folder, options=options, report=False)
    except PeerLost as lost:
        error = lost
    return load_run(folder).summary, error


def check(algorithm: str, fault: str, backend: str, folder: Path) -> None:
    summary, error = run(algorithm, fault, backend, folder)
    expected = OUTCOMES[fault][ALGORITHMS.index(algorithm)]
    assert [row["kind"] for row in summary["faults"]] == [FAULTS[fault]["kind"]], "it did happen"
    lost = set(summary.get("lost", {}))
    if expected == FAILS:
        assert error is not None
        parted = (0, 1, 2) if "server" in fault else (0, 2)
        assert error.rank in parted, "one of those whom the fault has parted"
        assert summary["error"]["type"] == "PeerLost"
        return
    assert error is None, error
    assert summary["status"] == "done"
    assert bool(summary.get("regroups")) == (expected == RE_FORMS)
    assert lost == missed(fault, expected)


def missed(fault: str, outcome: str) -> set[str]:
    """Who is not there at the end."""
    if outcome == ALL_END_WELL or (outcome == RE_FORMS and "restart" in fault):
        return set()
    if fault == "long cut of the server":
        return {"n1", "n2"}  # of two that are cut off from each other the higher rank leaves a group, too
    return {"n0"} if "server" in fault else {"n2"}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_declared_outcome_in_the_simulator(algorithm: str, fault: str, tmp_path: Path) -> None:
    check(algorithm, fault, "sim", tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "algorithm"),
    [case for fault, names in ON_SOCKETS.items() for case in sample_of([(fault, name) for name in names], 3)],
)
def test_the_declared_outcome_on_real_nodes(fault: str, algorithm: str, tmp_path: Path) -> None:
    check(algorithm, fault, "sockets", tmp_path / "run")


@pytest.mark.slow
def test_what_is_survived_changes_the_time_but_no_weight_of_a_synchronous_run(tmp_path: Path) -> None:
    for algorithm in ("sync_ps", "all_reduce_dp"):
        plain = {**experiment(algorithm, "slow-down", "sim"), "faults": []}
        undisturbed = simcluster.run(plain, out=tmp_path / algorithm, report=False).summary
        for fault, outcomes in OUTCOMES.items():
            came_back = FAULTS[fault]["kind"] == "restart"  # without the gradients of the time in between
            if outcomes[ALGORITHMS.index(algorithm)] == ALL_END_WELL and not came_back:
                summary, _ = run(algorithm, fault, "sim", tmp_path / fault)
                assert summary["weights_sha256"] == undisturbed["weights_sha256"], fault
                assert summary["elapsed_s"] > undisturbed["elapsed_s"], fault
                assert summary["bytes_sent"] == undisturbed["bytes_sent"], fault


def test_the_table_of_the_documentation_is_this_one() -> None:
    text = (ROOT / "docs" / "faults.md").read_text()
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", text, re.MULTILINE)
    table = {fault: words for faults, *words in rows for fault in faults.split("; ") if fault.strip("*") in FAULTS}
    assert {fault.strip("*"): tuple(words) for fault, words in table.items()} == OUTCOMES
    assert {fault.strip("*") for fault in table if fault.startswith("**")} == set(ON_SOCKETS)
