"""Commands of simcluster on the hosts of a network, with one node process per host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.root import ROOT
from tools.netns.accelerator import PACE
from tools.netns.hosts import LAUNCHER, LAUNCHER_ADDRESS, Hosts

PORT = 52300
SIMCLUSTER = (sys.executable, "-m", "simcluster")
PACED = (sys.executable, "-m", "tools.netns.serving.paced")
PATIENCE_S = 300.0


def make_key(folder: Path) -> Path:
    """Return the path of the key file in *folder*. Make the key if there is none."""
    file = folder / "cluster.key"
    if file.is_file():
        return file
    subprocess.run([*SIMCLUSTER, "key", str(file)], cwd=ROOT, check=True, capture_output=True)
    return file


def launch(
    hosts: Hosts, nodes_s: Mapping[str, float | str], key: Path, *command: str, node: Sequence[str] = SIMCLUSTER
) -> str:
    """Run `simcluster COMMAND` with the nodes in *nodes_s*, and return its output.

    *nodes_s* maps each node to the length of its pauses. *node* is the command of a node process.
    Raise RuntimeError with the command's errors if it fails or takes longer than PATIENCE_S.
    """
    meeting = f"{LAUNCHER_ADDRESS}:{PORT}"
    with _nodes(hosts, nodes_s, key, meeting, node):
        options = ["--rendezvous", meeting, "--key-file", str(key)]
        full = hosts.command(LAUNCHER, *SIMCLUSTER, *command, *options)
        try:
            done = subprocess.run(full, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"simcluster {' '.join(command)}: no end within {PATIENCE_S:g} s") from None
    if done.returncode:
        raise RuntimeError(f"simcluster {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def _nodes(
    hosts: Hosts, nodes_s: Mapping[str, float | str], key: Path, meeting: str, node: Sequence[str]
) -> Iterator[None]:
    processes = [_node(hosts, name, pace, key, meeting, node) for name, pace in nodes_s.items()]
    try:
        yield
        for process in processes:
            process.wait(timeout=PATIENCE_S)  # a node exits when its run ends
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _node(
    hosts: Hosts, name: str, pace: float | str, key: Path, meeting: str, node: Sequence[str]
) -> subprocess.Popen[bytes]:
    listen = f"{hosts.addresses[name]}:0"
    command = (*node, "node", name, "--join", meeting, "--key-file", str(key), "--listen", listen)
    return subprocess.Popen(
        hosts.command(name, *command),
        cwd=ROOT,
        env={**os.environ, PACE: str(pace)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
