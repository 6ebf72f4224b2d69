"""The command: output for people and machines, exit codes, and nothing written for a wrong request."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from simcluster_backends.sockets.launcher.node_handle import NodeHandle

from simcluster.algorithms import ALGORITHMS
from simcluster.results import load_run
from tests.support.socket_runs import GUARD_S

SHORT = ("--set", "stop.steps=6", "--no-report")


@pytest.mark.slow
def test_a_timing_run_says_that_it_is_one_and_threads_change_nothing(command: Any, tmp_path: Path) -> None:
    code, out, err = command("run", "quickstart", *SHORT, "--set", "numerics=none")
    assert (code, err) == (0, "")
    assert "timed only" in out
    assert "None" not in out
    for threads in ("1", "2"):
        assert command("run", "quickstart", *SHORT, "--option", f"threads={threads}", "--out", threads)[0] == 0
    one, two = (load_run(tmp_path / threads).summary for threads in ("1", "2"))
    assert one["trace_sha256"] == two["trace_sha256"]
    assert one["weights_sha256"] == two["weights_sha256"]


@pytest.mark.slow
def test_run_prints_the_summary_in_words_or_as_json(command: Any, tmp_path: Path) -> None:
    code, out, err = command("run", "quickstart", *SHORT)
    assert (code, err) == (0, "")
    assert "sync_ps on smolcluster (sim, seed 0): done" in out
    folder = tmp_path / "runs" / "quickstart-sync_ps-sim-seed0"
    assert folder.name in out
    code, out, err = command("run", "quickstart", *SHORT, "--json", "--seed", "3", "--out", "elsewhere")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary == json.loads((tmp_path / "elsewhere" / "summary.json").read_text())
    keys = (
        "name backend algorithm topology seed status elapsed_s wall_s steps loss accuracy messages_sent bytes_sent "
        "weights_sha256 trace_sha256 version nodes links"
    )
    for key in keys.split():
        assert key in summary, key
    assert (summary["seed"], summary["status"], summary["steps"]) == (3, "done", 6)


def test_a_topology_with_four_faults_prints_four_errors_with_lines_and_writes_nothing(
    command: Any, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text(
        "name: bad\n"
        "nodes:\n"
        "  a: {device: mac-mini-m4}\n"
        "  b: {device: mac-mini-m5000}\n"
        "  c: {device: raspberry-pi-5}\n"
        "  d: {device: raspberry-pi-4}\n"
        "  a: {device: raspberry-pi-4}\n"
        "links:\n"
        "  - {between: [a, b], bandwidth: 100, latency: 1 ms}\n"
        "  - {between: [b, c], type: ethernet-1g}\n"
    )
    for arguments in (["topology", "check", "bad.yaml"], ["run", "quickstart", "--topology", "bad.yaml"]):
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        lines = err.strip().splitlines()
        assert len(lines) == 4, err
        for number in (4, 6, 7, 9):
            assert any(f"bad.yaml:{number}:" in line for line in lines), f"line {number} in {err}"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.yaml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "quickstart", "--set", "algorithm.pull_intervall=2"], "did you mean 'pull_interval'?"),
        (["run", "quickstart", "--algorithm", "sync_pss"], "did you mean 'sync_ps'?"),
        (["run", "quickstart", "--backend", "simm"], "sim or sockets or torch"),
        (["run", "quickstart", "--set", "stop.steps"], "KEY=VALUE"),
        (["run", "nothing-like-it.yaml"], "quickstart"),
        (["run", "quickstart", "--backend", "sim", "--rendezvous", "127.0.0.1:1"], "--backend sockets"),
        (["run", "quickstart", "--option", "threads=0"], "a whole number from 1 to 4096"),
        (["run", "quickstart", "--backend", "sockets", "--option", "limit_ss=3"], "did you mean 'limit_s'?"),
        (["run", "quickstart", "--backend", "sockets", "--option", "limit_s"], "KEY=VALUE"),
        (["run", "quickstart", "--option", "limit_s=3"], "is it meant for sockets?"),
        (["compare", "a"], "at least two"),
        (["compare", "a", "b"], "no folder a"),
        (["list", "algoritms"], "did you mean 'algorithms'?"),
        (["topology", "check", "smolclustr"], "did you mean 'smolcluster'?"),
        (["topology", "draw", "smolcluster", "--out", "no/such/folder.html"], "a folder that exists"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_request_is_explained_exits_2_and_writes_nothing(
    command: Any, tmp_path: Path, arguments: list[str], words: str
) -> None:
    code, _, err = command(*arguments)
    assert code == 2
    assert words in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_failed_run_names_its_error_seed_and_folder_and_exits_1(command: Any, tmp_path: Path) -> None:
    crash = ("--set", "faults=[{kind: crash, node: pi4, at: 10 ms}]")
    code, out, err = command(
        "run", "quickstart", "--algorithm", "zero", *crash, "--no-report", "--seed", "4", "--out", "failed", "--json"
    )
    assert code == 1
    assert "PeerLost: rank 4 (pi4) is lost" in err
    assert "seed: 4\nrun folder: failed" in err
    summary = json.loads(out)
    assert summary["status"] == "failed"
    assert summary["error"]["type"] == "PeerLost"


@pytest.mark.parametrize("backend", ["sim", "sockets"])
def test_own_code_that_fails_is_told_whole_and_where_its_traceback_is(
    backend: str, command: Any, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "async def own(node, replica):\n    if node.rank == 1:\n        raise ValueError('first\\nsecond')\n"
    )
    own = f"algorithm={{path: {tmp_path}/own.py:own}}"
    code, _, err = command("run", "quickstart", "--set", own, "--backend", backend, "--no-report", "--out", "failed")
    assert code == 1
    assert "NodeFailed: rank 1 (mini2) failed: ValueError: first\n  second\n" in err
    assert f"its traceback: {Path('failed', 'traceback.txt')}" in err
    assert 'own.py", line 3, in own' in (tmp_path / "failed" / "traceback.txt").read_text()


def test_list_names_everything_with_its_settings(command: Any) -> None:
    code, out, _ = command("list")
    assert code == 0
    for name in ("sync_ps", "pull_interval=1", "mnist_mlp", "halos-4-regions", "thunderbolt-5", "raspberry-pi-5"):
        assert name in out, name
    code, out, _ = command("list", "algorithms", "--json")
    assert list(json.loads(out)["algorithms"]) == sorted(ALGORITHMS)


@pytest.mark.slow
def test_topology_check_and_draw_work_on_every_shipped_file(command: Any, tmp_path: Path) -> None:
    for name in json.loads(command("list", "topologies", "--json")[1])["topologies"]:
        code, out, _ = command("topology", "check", name)
        assert code == 0
        assert name in out
        assert command("topology", "draw", name)[:2] == (0, f"{name}.html\n")
        assert "<svg" in (tmp_path / f"{name}.html").read_text()


def test_version_and_help_need_no_torch() -> None:
    script = """
import sys
sys.argv = ["simcluster", "--version"]
from simcluster.cli import app
from simcluster.results import load_run
try:
    app.main()
except SystemExit:
    assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("simcluster ")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sync_ps", "edp"])
def test_a_killed_worker_that_no_other_needs_is_named_and_what_was_measured_is_kept(
    algorithm: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes: list[psutil.Process] = []
    measured: set[str] = set()
    hear = NodeHandle.hear

    def kill_one(member: NodeHandle, message: Any) -> None:
        hear(member, message)
        if any(metric.name == "loss" for metric in member.metrics):
            measured.add(member.name)
        if not nodes and measured >= {"mini1", "pi4"}:
            (fork_server,) = [child for child in psutil.Process().children() if len(child.children()) == 5]
            nodes.extend(fork_server.children())
            nodes[-1].kill()

    monkeypatch.setattr(NodeHandle, "hear", kill_one)
    # Time enough for a machine that is busy.
    short = ["workload.hidden=4", "stop={time: 8 s, steps: 1000000}", "evaluate_every=1000000"]
    sets = [word for text in short for word in ("--set", text)]
    asked = ("run", "quickstart", "--backend", "sockets", "--algorithm", algorithm, "--no-report", "--out", "run")
    code, out, err = command(*asked, *sets)
    assert code == 0, err
    assert "  without pi4: its process is gone" in out
    assert len(nodes) == 5
    assert psutil.wait_procs(nodes, timeout=GUARD_S)[1] == [], "a process is left behind"
    run = load_run(tmp_path / "run")
    assert run.summary["status"] == "done"
    assert set(run.metrics[run.metrics.name == "loss"].node) >= {"mini1", "pi4"}, "metrics so far are kept"


@pytest.mark.slow
def test_output_that_cannot_be_written_is_told_in_a_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "simcluster", "list", "devices"],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "error: cannot write the output: No space left on device\n")


def test_a_log_folder_that_cannot_be_made_is_a_run_that_failed(command: Any) -> None:
    if not Path("/proc/self").exists():
        pytest.skip("no folder in which even root can make nothing")
    code, _, err = command("run", "quickstart", *SHORT, "--backend", "sockets", "--out", "/proc/nothing/run")
    assert code in (1, 2), err
    assert err.startswith("error: ")
