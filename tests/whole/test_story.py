"""The whole story of real nodes: a shelf of four is launched by ssh, watched, loses one, goes on, and is compared.

Every node is a network namespace with a shaped link and an sshd of its own; docs/real-nodes.md has the same commands.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from simcluster_backends.sockets import write_key

import simcluster
from simcluster.checkpoints.store import latest
from simcluster.cli.app import compare
from simcluster.topology import load
from tests.support.socket_runs import ROOT, wait_for
from tests.support.sshd import why_not
from tools.netns.hosts import LAUNCHER, missing
from tools.netns.shelf import Shelf, inhabitants, shelf_of

REASON = missing() or why_not()
STEPS, EVERY = 80, 5
PORT = 52400

# What is told to somebody who asks again and again, line by line, until the run is over.
LOOKING = f"""
import json, pathlib, sys, time
from simcluster_backends.sockets.coordinator.client import Client, NoAnswer
client, answered = Client("http://127.0.0.1:{PORT}", pathlib.Path(sys.argv[1]).read_text().strip()), False
while True:
    try:
        print(json.dumps(client.get("/status")), flush=True)
        answered = True
    except NoAnswer:
        if answered:
            break
    time.sleep(0.1)
"""

# All hosts here know of all processes of this machine; on a machine of its own a node is found without the namespace.
KILL = "kill -9 $(pgrep --ns $$ --nslist net -n -f '[b]ackends.sockets.launcher.fork_process')"

NODES = {f"n{rank}": f"10.77.0.{rank + 1}" for rank in range(4)}


def topology_file(folder: Path) -> Path:
    """The one topology file of the story. n3 is further away than the others, and its link is slower."""
    links = {name: {"bandwidth": "50 Mbps", "latency": "0 s"} for name in NODES}
    links["n3"] = {"bandwidth": "10 Mbps", "latency": "2 ms"}
    nodes = {name: {"flops": "1 GFLOP/s", "ssh": name, "address": address} for name, address in NODES.items()}
    words = ["env", f"PYTHONPATH={ROOT}", f"TMPDIR={folder / 'there'}", sys.executable, "-m", "simcluster"]
    document = {
        "name": "shelf",
        "launch": {"command": words},
        "nodes": nodes | {"sw": {"kind": "switch"}},
        "links": [{"between": [name, "sw"], **link} for name, link in links.items()],
    }
    file = folder / "shelf.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def experiment_file(folder: Path) -> Path:
    document = {
        "name": "story",
        "topology": "shelf.yaml",
        "algorithm": "zero",
        "workload": {"name": "mnist_mlp", "hidden": 16},
        "stop": {"steps": STEPS},
        "checkpoint": {"every": EVERY},
        "seed": 5,
    }
    file = folder / "story.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


@dataclass
class Stage:
    """Where the story is told: the shelf, and a folder for what it leaves."""

    shelf: Shelf
    folder: Path

    @contextmanager
    def python(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Python with *words* where the launcher is, as if started at a terminal; it ends with the block."""
        command = self.shelf.hosts.command(LAUNCHER, sys.executable, *words)
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def looks(self) -> list[dict[str, Any]]:
        """What the coordinator says until some steps are done and some checkpoints kept, or the run is over."""
        seen: list[dict[str, Any]] = []
        with self.python("-c", LOOKING, str(self.folder / "token")) as watcher:
            assert watcher.stdout is not None
            for line in watcher.stdout:
                if (status := json.loads(line))["run"]:
                    seen.append(status)
                    if 3 * EVERY <= status["run"]["step"] > seen[0]["run"]["step"]:
                        break
        return seen

    def ssh(self, host: str, line: str) -> None:
        """Runs *line* in a shell on *host*, from where the launcher is."""
        command = ["ssh", "-F", str(self.shelf.config), host, line]
        subprocess.run(self.shelf.hosts.command(LAUNCHER, *command), check=True)

    def is_empty(self) -> bool:
        """Nobody is on any host but its holder and its server, and nothing of ours where nodes have temporary files."""
        return not any(map(self.shelf.on, (*NODES, LAUNCHER))) and not any((self.folder / "there").glob("simcluster-*"))


@pytest.mark.slow
@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_a_shelf_is_launched_watched_loses_a_node_goes_on_and_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there").mkdir()
    topology, experiment = topology_file(tmp_path), experiment_file(tmp_path)
    write_key(tmp_path / "token", bytes(range(32)))
    real, simulated = tmp_path / "real", tmp_path / "sim"
    with shelf_of(load(topology), tmp_path / "ssh") as shelf:
        assert {name: shelf.hosts.addresses[name] for name in NODES} == NODES
        stage = Stage(shelf, tmp_path)
        ways = ["--backend", "sockets", "--ssh-config", str(shelf.config), "--no-report"]
        watched = ["--coordinator", f"127.0.0.1:{PORT}", "--token-file", str(tmp_path / "token")]

        # run, watch, kill one
        with stage.python("-m", "simcluster", "run", str(experiment), "--out", str(real), *ways, *watched) as launcher:
            prediction = simcluster.run(experiment, out=simulated, report=False)
            seen = stage.looks()
            assert seen, "the coordinator tells of no run"
            stage.ssh("n2", KILL)
            _, said = launcher.communicate()
        members = [(one["name"], one["rank"], one["state"]) for one in seen[-1]["workers"]]
        assert members == [(name, rank, "alive") for rank, name in enumerate(NODES)]
        steps = [status["run"]["step"] for status in seen]
        assert steps == sorted(steps)
        assert steps[0] < steps[-1] < STEPS
        assert launcher.returncode == 1, said
        assert "rank 2 (n2) is lost" in said
        wait_for(stage.is_empty)

        # resume
        kept = latest(real).step
        assert 0 < kept < STEPS
        with stage.python("-m", "simcluster", "resume", str(real), "--json", *ways) as launcher:
            printed, said = launcher.communicate()
        assert launcher.returncode == 0, said
        summary = json.loads(printed)
        assert (summary["resumed"]["step"], summary["steps"]) == (kept, STEPS)
        assert summary["weights_sha256"] == prediction.summary["weights_sha256"]
        wait_for(stage.is_empty)

    # compare with the prediction
    compare([simulated, real])
    words = capsys.readouterr().out
    assert "The same weights to the bit" in words
    assert "predicted, measured" in words
    wait_for(lambda: not any(map(inhabitants, shelf.spaces.values())))
