"""A real network of one's own: what is built, that nothing of it stays, and a small comparison with the simulator.

No time is asserted here: `make fidelity` measures, on a machine that has nothing else to do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from simcluster.results import compare
from simcluster.topology import load
from tests.support.levels import sample_of
from tests.support.socket_runs import wait_for
from tools.netns.fidelity import compare_all
from tools.netns.hosts import LAUNCHER, LAUNCHER_ADDRESS, hosts_of, missing
from tools.netns.load import awake
from tools.netns.report import COLUMNS, covered, row, summary, swapped
from tools.netns.scenarios import NETWORKS, Network, Size

REASON = missing()
needs_hosts = pytest.mark.skipif(REASON is not None, reason=REASON or "")
PAIR = Network("pair", {"n0": 0.0, "n1": 0.0}, (("n0", "n1", "40 Mbps", "1 ms"),))


def ping(hosts: Any, source: str, address: str) -> str:
    command = [sys.executable, "-c", PING, address]
    done = subprocess.run(hosts.command(source, *command), capture_output=True, text=True, check=True)
    return done.stdout.strip()


# Not every machine has the command; a UDP datagram to a closed port comes back as an error at once.
PING = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(10)
s.connect((sys.argv[1], 9))
s.send(b"x")
try:
    s.recv(1)
except ConnectionRefusedError:
    print("there")
"""


@pytest.mark.slow
@needs_hosts
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_every_host_reaches_every_other_and_the_launcher(network: Network) -> None:
    with hosts_of(load(network.document())) as hosts:
        names = list(network.nodes)
        assert [ping(hosts, names[0], hosts.addresses[name]) for name in names[1:]] == ["there"] * (len(names) - 1)
        assert ping(hosts, names[-1], hosts.addresses[names[0]]) == "there"
        assert ping(hosts, LAUNCHER, hosts.addresses[names[-1]]) == "there"
        assert ping(hosts, names[-1], LAUNCHER_ADDRESS) == "there"


@needs_hosts
def test_hosts_have_their_own_settings_and_this_machine_keeps_its(tmp_path: Path) -> None:
    setting = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    before = setting.read_text()
    with hosts_of(load(PAIR.document())) as hosts:
        inside = subprocess.run(hosts.command("n0", "cat", str(setting)), capture_output=True, text=True, check=True)
        assert inside.stdout.strip() == "reno"
        assert setting.read_text() == before


@pytest.mark.slow
@needs_hosts
@pytest.mark.parametrize("way", sample_of([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
def test_nothing_stays_however_the_builder_ends(way: signal.Signals) -> None:
    code = (
        "import time\n"
        "from simcluster.topology import load\n"
        "from tools.netns.hosts import hosts_of\n"
        "from tests.tools.test_netns import PAIR\n"
        "with hosts_of(load(PAIR.document())) as hosts:\n"
        "    print(*hosts.pids.values(), flush=True)\n"
        "    time.sleep(3600)\n"
    )
    builder = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        # A job that a shell started in the background ignores SIGINT, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert builder.stdout is not None
    pids = [int(pid) for pid in builder.stdout.readline().split()]
    assert len(pids) == 3
    relays = [child for child in psutil.Process(builder.pid).children(recursive=True) if child.pid not in pids]
    assert relays  # the link with latency
    builder.send_signal(way)
    builder.wait()
    builder.stdout.close()
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in [*pids, *(relay.pid for relay in relays)]))


@pytest.mark.exhaustive
@needs_hosts
def test_a_scenario_is_calibrated_run_and_predicted(tmp_path: Path) -> None:
    asked = (tmp_path, [PAIR], ["all_reduce_dp"], [Size(20_000, 6)], 1)
    outcomes = list(compare_all(*asked, choosy=False))
    assert [outcome.algorithm for outcome in outcomes] == ["all_reduce_dp"]
    # What the calibration wrote: less than the shaper's rate, since headers take their part, and some latency.
    measured = load(tmp_path / "pair-20000-measured.yaml").links[0]
    assert 0.5 * 5e6 < measured.bandwidth_Bps < 5e6
    assert measured.latency_s > 0.5e-3
    for outcome in outcomes:
        (run,) = outcome.measured
        (pair,) = compare(outcome.predicted, run).pairs
        assert pair.same_weights
        assert outcome.predicted.summary["bytes_sent"] == run.summary["bytes_sent"] > 6 * 80_000
        assert set(pair.phases) == {"n0", "n1"}
        assert set(pair.transits) == {"n0-n1"}
        # the bytes alone take 16 ms a way at 40 Mbit/s; predicted or measured, it cannot be quicker
        assert min(outcome.step_s) > 0.016
        assert pair.interval is not None
        assert 0.016 < outcome.intervals[0]["low"] < outcome.intervals[0]["high"]
    (cells,) = map(row, outcomes)
    assert len(cells) == len(COLUMNS)
    assert cells[:3] == ["pair", "all_reduce_dp", "0.08 MB"]
    assert summary(outcomes).startswith("Of 1 scenarios the median error is ")
    # What is there is not made again: not even hosts are built.
    began = (tmp_path / "notes.json").stat().st_mtime_ns
    assert [again.run_s for again in compare_all(*asked, choosy=False)] == [outcome.run_s for outcome in outcomes]
    assert (tmp_path / "notes.json").stat().st_mtime_ns == began


def outcome(predicted_s: float, measured_s: float) -> Any:
    return SimpleNamespace(step_s=(predicted_s, measured_s))


@needs_hosts
def test_each_core_is_kept_awake_by_what_yields_to_everything() -> None:
    # other children may have higher numbers: a machine that runs for long begins again with small ones
    before = set(psutil.Process().children())
    with awake():
        loops = set(psutil.Process().children()) - before
        assert len(loops) == os.cpu_count()
        wait_for(lambda: all(os.sched_getscheduler(loop.pid) == os.SCHED_IDLE and loop.nice() == 19 for loop in loops))
    assert not any(loop.is_running() for loop in loops)


def test_scenarios_in_the_wrong_order_are_found() -> None:
    first, second, third = outcome(1.0, 1.1), outcome(2.0, 3.0), outcome(2.5, 2.9)
    assert swapped([first, second]) == []
    assert swapped([first, second, third]) == [(second, third)]


def test_measured_times_inside_their_interval_are_counted() -> None:
    step, run = {"low": 1.0, "high": 2.0}, {"low": 5.0, "high": 6.0}
    found: Any = SimpleNamespace(intervals=(step, run), steps_s=[0.9, 1.0, 2.0], runs_s=[5.5, 6.1, 7.0])
    assert [covered([found], which) for which in (0, 1)] == [2, 1]
