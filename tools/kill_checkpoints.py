"""`make kill-checkpoints`: kills runs while they write checkpoints, and checks the last complete
one.

A run in a separate process writes a checkpoint after every step. It reports when it begins to write
one and when one is complete. After it has begun a random checkpoint, it is killed by SIGKILL at a
random moment.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import signal
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simcluster
from simcluster.checkpoints.gather import Gather
from simcluster.checkpoints.store import SHARDS, Store, checkpoints, latest
from simcluster.experiment.run import resume
from simcluster.process.intra_op import use_one_thread

PATIENCE_S = 300.0


def experiment(steps: int = 40, hidden: int = 64, **keys: Any) -> dict[str, Any]:
    """Return an experiment with nine files per checkpoint.

    Its four ranks have different weights and optimizers.
    """
    return {
        "topology": "thunderbolt-mesh-4",
        "algorithm": {"name": "d_psgd"},
        "workload": {"name": "mnist_mlp", "hidden": hidden, "batch_size": 8, "optimizer": "adamw"},
        "stop": {"steps": steps},
        "evaluate_every": steps,
        **keys,
    }


@dataclass
class Found:
    """The state after a kill: the last step *told* to be complete, and the last step *found*
    complete.

    *litter* tells whether half-written files are left.
    """

    told: int
    found: int
    litter: bool


def kill_once(folder: Path, chance: random.Random, backend: str = "sim", most: int = 12) -> Found:
    """Start a run, kill it while it writes a random checkpoint, and return the state of its folder.

    Raise CheckpointError if there is no complete checkpoint. Raise AssertionError if the last one
    is older than the run reported.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _run(folder, backend, write, experiment(checkpoint={"every": 1, "keep": 2}))
    os.close(write)
    at = chance.randrange(2, most)
    told = 0
    began_s = 0.0
    took_s = 0.0
    seen = 0
    try:
        for line in _lines(read):
            if line.startswith("begin"):
                began_s, seen = time.perf_counter(), seen + 1
                if seen >= at:
                    time.sleep(chance.uniform(0.0, 1.2 * took_s))
                    break
            else:
                told, took_s = int(line.split()[1]), time.perf_counter() - began_s
    finally:
        os.kill(child, signal.SIGKILL)
        told = max([told, *(int(line.split()[1]) for line in _lines(read) if line.startswith("done"))])
        os.waitpid(child, 0)
        os.close(read)
    return look(folder, told)


def plain(steps: int, **keys: Any) -> dict[str, Any]:
    """Return an experiment of four ranks that average gradients."""
    return {
        "topology": "thunderbolt-mesh-4",
        "algorithm": {"name": "all_reduce_dp"},
        "workload": {"name": "mnist_mlp", "hidden": 16, "batch_size": 8, "optimizer": "adamw"},
        "stop": {"steps": steps},
        **keys,
    }


def half_way(folder: Path, backend: str, steps: int) -> str | None:
    """Start a run of *steps* steps, kill it after half of them, and resume it.

    Return the hash of the final weights.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _run(folder, backend, write, plain(steps, checkpoint={"every": steps // 2}))
    os.close(write)
    for line in _lines(read):
        if line == f"done {steps // 2}":
            break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    ended = resume(folder, report=False)
    assert ended.summary["resumed"]["step"] == steps // 2
    assert ended.summary["steps"] == steps
    digest: str | None = ended.summary["weights_sha256"]
    return digest


def look(folder: Path, told: int) -> Found:
    """Check the folder of a killed run, and return its state.

    *told* is the last step that the run reported as complete.
    """
    inner = folder / "checkpoints"
    named = {file.sha256 for one in checkpoints(folder) for rank in one.manifest.ranks for file in rank.files.values()}
    litter = any(path.stem not in named for path in (inner / SHARDS).iterdir()) or any(inner.glob(".partial-*"))
    found = latest(folder)  # reads every byte of the checkpoint
    assert found.step >= told, f"step {told} was complete, and {found.step} is the last that is found"
    assert {rank.step for rank in found.manifest.ranks} == {found.step}, "shards of several steps"
    return Found(told, found.step, litter)


def _run(folder: Path, backend: str, write: int, keys: dict[str, Any]) -> None:
    """Run the experiment in this forked process, and report its checkpoints to the pipe *write*.

    Then exit the process.
    """
    add, commit = Gather.add, Store.commit
    started: set[int] = set()

    def telling_add(self: Gather, shard: Any, lost: Any = ()) -> None:
        if shard.step not in started:
            started.add(shard.step)
            os.write(write, f"begin {shard.step}\n".encode())
        add(self, shard, lost)

    def telling_commit(self: Store, manifest: Any, in_use: Any = ()) -> Path:
        path = commit(self, manifest, in_use)
        os.write(write, f"done {manifest.step}\n".encode())
        return path

    try:
        os.setpgid(0, 0)
        Gather.add, Store.commit = telling_add, telling_commit  # type: ignore[method-assign]
        simcluster.run(**keys, backend=backend, out=folder, report=False)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _lines(read: int) -> Any:
    """Yield lines from the pipe *read* until its other end is closed.

    Raise TimeoutError if none arrives for PATIENCE_S.
    """
    rest = b""
    while True:
        ready, _, _ = select.select([read], [], [], PATIENCE_S)
        if not ready:
            raise TimeoutError(f"nothing for {PATIENCE_S:g} s")
        more = os.read(read, 65536)
        if not more:
            return
        *lines, rest = (rest + more).split(b"\n")
        yield from (line.decode() for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--sockets", type=int, default=10, help="so many of them are of a launcher of real processes")
    parser.add_argument("--steps", type=int, default=200, help="of the runs that are killed after half of them")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    # A child forked from a process with OpenMP threads would wait forever for these threads.
    use_one_thread()
    chance = random.Random(asked.seed)
    found: list[Found] = []
    exact = 0
    with tempfile.TemporaryDirectory(prefix="kill-checkpoints-") as root:
        whole = simcluster.run(**experiment(), out=Path(root) / "whole", report=False).summary["weights_sha256"]
        for number in range(asked.kills):
            backend = "sockets" if number < asked.sockets else "sim"
            folder = Path(root) / str(number)
            found.append(kill_once(folder, chance, backend))
            if number % 10 == 0:
                ended = resume(folder, report=False)
                exact += ended.summary["weights_sha256"] == whole
                print(
                    f"kill {number}, {backend}: {found[-1]}; resumed from {ended.summary['resumed']['step']}",
                    flush=True,
                )
        whole = simcluster.run(**plain(asked.steps), out=Path(root) / "all", report=False).summary["weights_sha256"]
        halves = {
            backend: half_way(Path(root) / backend, backend, asked.steps) == whole for backend in ("sim", "sockets")
        }
    half_done = sum(one.litter for one in found)
    resumed = -(-asked.kills // 10)
    print(f"{asked.kills} kills, {len(found)} complete checkpoints found, never an older one than was told")
    print(f"in {half_done} of them something was half done; {exact} of {resumed} resumed runs end with the same bits")
    for backend, same in halves.items():
        words = f"{asked.steps} steps on {backend}, killed after step {asked.steps // 2} and resumed"
        print(f"{words}: {'the same' if same else 'OTHER'} bits")
    if exact != resumed or not all(halves.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
