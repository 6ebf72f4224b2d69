"""Seeds of kills, stragglers, hangs and cuts on small scripts in the simulator.

python -m tests.core.scripts.kills [--first 0] [--seeds 100]

Each run is done, or ends in a typed error; none hangs, and none leaves a process or a file in shared memory. Exit code
1 if one does otherwise.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import sys
import tempfile
from collections import Counter
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil

from simcluster.errors import RunError
from tests.core.scripts.running import SHIPPED, pair, run_script

NODES = "abcd"
HANG_S = 300.0
"""Wall time of one run, which takes 3 s on an idle machine."""

CATCHING = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
lost = 0
for step in range(30):
    try:
        dist.all_reduce(torch.ones(2000))
        dist.broadcast(torch.ones(500), src=step % dist.get_world_size())
    except RuntimeError:
        lost += 1
        if lost == 3:
            raise
"""


def faults_of(draw: random.Random, length_s: float) -> list[dict[str, Any]]:
    """Return one to three faults at times within *length_s*, about that of the run."""
    found: list[dict[str, Any]] = []
    for _ in range(draw.randint(1, 3)):
        at = f"{draw.uniform(0, 1.2 * length_s):.9f} s"
        lasts = {"for": f"{draw.choice([0.1, 0.5, 2]) * length_s:.9f} s"} if draw.random() < 0.6 else {}
        kind = draw.choice(["crash", "crash", "restart", "hang", "slow", "cut"])
        where = {"link": "-".join(sorted(draw.sample(NODES, 2)))} if kind == "cut" else {"node": draw.choice(NODES)}
        if kind == "restart":
            where["after"] = f"{draw.uniform(0.01, 1) * length_s:.9f} s"
        factor = {"factor": draw.uniform(2, 20)} if kind == "slow" else {}
        found.append({"kind": kind, "at": at, **where, **factor, **({} if kind in ("crash", "restart") else lasts)})
    return found


def try_seed(seed: int, folder: Path) -> str:
    """Run *seed* into *folder*; return how it ended, in a word or two."""
    draw = random.Random(seed)
    topology = pair(nodes=NODES, bandwidth="100 Mbps", latency="20 us")
    if draw.random() < 0.5:
        topology["nodes"][draw.choice(NODES)]["straggler"] = {"kind": "constant", "factor": draw.uniform(1.5, 10)}
    (folder / "catching.py").write_text(CATCHING)
    script, args, length_s = draw.choice(
        [(SHIPPED / "ddp_mlp.py", ("--steps", "4"), 0.08), (folder / "catching.py", (), 0.03)]
    )
    options = {"max_restarts": draw.choice([0, 0, 1])}
    try:
        run = run_script(script, folder / "run", topology, *args, faults=faults_of(draw, length_s), options=options)
    except RunError as error:
        return type(error).__name__
    return str(run.summary["status"]) + (" after a restart" if run.summary.get("restarts") else "")


def left_over(folder: Path = Path("/dev/shm")) -> list[str]:
    """Return what the runs of this process have left: processes of ranks, and their shared memory."""
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    if server is None:
        return []
    ranks = [f"process {child.pid}" for child in psutil.Process(server).children(recursive=True)]
    return ranks + [str(path) for path in folder.glob(f"simcluster-{os.getpid()}-*")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.core.scripts.kills", description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    given = parser.parse_args()
    ends: Counter[str] = Counter()
    wrong = 0
    for seed in range(given.first, given.first + given.seeds):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        with tempfile.TemporaryDirectory(prefix="kills-") as place:
            try:
                ends[try_seed(seed, Path(place))] += 1
            except Exception as error:
                wrong += 1
                print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        if left := left_over():
            wrong += 1
            print(f"seed {seed} left {', '.join(left)}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(f"{given.seeds} seeds:", ", ".join(f"{count} {end}" for end, count in ends.most_common()), f"; {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
