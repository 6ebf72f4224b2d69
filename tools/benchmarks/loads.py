"""`make bench LOADS=1`: typical runs of users, with each shortcut on and off.

python -m tools.benchmarks.loads [LOAD ...] [--pairs N] [--before CHECKOUT]

Each measurement is a fresh process. Runs with all shortcuts (a) alternate with runs that lack one
or all shortcuts (b), in the order a, b, b, a. The ratio is the median of the pairs. A shortcut pays
off at a ratio of 1.25 or more. With --before, a is this checkout and b is another one.
docs/performance.md has the table.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.root import ROOT
from tools.benchmarks import script_steps
from tools.netns.hosts import hosts_of, missing
from tools.netns.trial import launch, make_key

SHORTCUTS = ("exchange", "rounds", "lazy")
REAL_SHORTCUTS = ("exchange", "landing", "memory")
NONE = "none"

FELT = 1.1
"""Shortcuts are measured one by one only if a load without any takes at least this much longer."""

Options: TypeAlias = Mapping[str, Any]
Cost: TypeAlias = Callable[[Options], float]
"""Backend options -> the cost of a load with these, in seconds of CPU time or wall time."""


@dataclass(frozen=True)
class Load:
    """A typical run of a user. Its *cost* is measured with and without each of *shortcuts*."""

    words: str
    cost: Cost
    shortcuts: Sequence[str] = SHORTCUTS
    pairs: int = 3


def main() -> None:
    arguments = _arguments()
    if arguments.one is not None:
        kept = {"": {}, NONE: {"shortcuts": False}}.get(arguments.shortcuts, {"shortcuts": arguments.shortcuts})
        print(LOADS[arguments.one].cost(kept))
        return
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}; medians of pairs of fresh processes", file=sys.stderr)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("load", "seconds", "compared with", "seconds", "ratio"))
    for name in arguments.loads or LOADS:
        for row in _rows(name, arguments.pairs, arguments.before):
            table.writerow(row)
            sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.loads", description=__doc__)
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=", ".join(LOADS))
    parser.add_argument("--pairs", type=int, help="pairs of each measurement (default: the load's)")
    parser.add_argument("--before", type=Path, help="another checkout of this project, measured in turn with this one")
    parser.add_argument("--one", choices=LOADS, help=argparse.SUPPRESS)
    parser.add_argument("--shortcuts", default="", help=argparse.SUPPRESS)
    found = parser.parse_args()
    if unknown := set(found.loads) - set(LOADS):
        parser.error(f"no load {', '.join(sorted(unknown))}; there are {', '.join(LOADS)}")
    return found


def _rows(name: str, pairs: int | None, before: Path | None) -> Iterator[tuple[str, ...]]:
    load = LOADS[name]
    rounds = pairs or load.pairs
    if name == "two hosts" and (reason := missing()):
        yield load.words, f"skipped: {reason}"
        return
    here = partial(_measured, name, ROOT)
    if before is not None:
        now_s, then_s, ratio = _compared(partial(here, ""), partial(_measured, name, before.resolve(), ""), rounds)
        yield load.words, f"{now_s:.2f}", "before", f"{then_s:.2f}", f"{ratio:.2f}"
        return
    if not load.shortcuts:  # a run without shortcuts takes hours
        yield load.words, f"{here(''):.2f}"
        return
    for dropped in (None, *load.shortcuts):
        others = NONE if dropped is None else "+".join(kept for kept in load.shortcuts if kept != dropped) or NONE
        on_s, off_s, ratio = _compared(partial(here, ""), partial(here, others), rounds)
        yield load.words, f"{on_s:.2f}", f"no {dropped or 'short cuts'}", f"{off_s:.2f}", f"{ratio:.2f}"
        if dropped is None and (ratio < FELT or len(load.shortcuts) == 1):
            return


def _compared(a: Callable[[], float], b: Callable[[], float], rounds: int) -> tuple[float, float, float]:
    """Return the median costs of *a* and of *b*, and the median ratio b / a of the pairs."""
    pairs = []
    for number in range(rounds):
        if number % 2:
            second, first = b(), a()
        else:
            first, second = a(), b()
        pairs.append((first, second))
    medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
    return medians[0], medians[1], statistics.median(b_s / a_s for a_s, b_s in pairs)


def _measured(name: str, checkout: Path, shortcuts: str) -> float:
    """Return the cost of load *name* in a fresh process, with the library of *checkout*.

    The loads are always those in this file.
    """
    with tempfile.TemporaryDirectory() as folder:
        for part in ("tools", "tests"):
            (Path(folder) / part).symlink_to(ROOT / part)
        for part in ("simcluster", "backends", "experiments", "topologies"):
            (Path(folder) / part).symlink_to(checkout / part)
        path = os.pathsep.join((folder, f"{folder}/backends"))
        command = [sys.executable, "-m", "tools.benchmarks.loads", "--one", name, "--shortcuts", shortcuts]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{name}, short cuts {shortcuts}: {done.stderr.strip()[-500:]}")
    return float(done.stdout.split()[-1])


def _simulated(experiment: Any, overrides: Mapping[str, Any], options: Options) -> float:
    """Return the CPU seconds of a run.

    First make a short run, which loads torch and warms it up.
    """
    import simcluster

    with tempfile.TemporaryDirectory() as out:
        simcluster.run("quickstart", overrides={"stop.steps": 2}, out=f"{out}/first", report=False)
        began_s = time.process_time()
        simcluster.run(experiment, overrides=overrides, out=f"{out}/run", report=False, options=options)
        return time.process_time() - began_s


def _trained(algorithm: Mapping[str, Any] | str, steps: int) -> Cost:
    """Return the cost function of the quickstart with *algorithm*.

    Five nodes compute values, on one core.
    """
    name = {"name": algorithm} if isinstance(algorithm, str) else algorithm
    overrides = {"algorithm": name, "stop.steps": steps}
    return lambda options: _simulated("quickstart", overrides, {"threads": 1, **options})


def _timed(algorithm: str, nodes: int, steps: int) -> Cost:
    """Return the cost function of *algorithm* on a star, without values."""
    overrides = {
        "topology.bandwidth": "1 Gbps",
        "topology.workers": nodes,
        "numerics": "none",
        "algorithm": {"name": algorithm},
        "stop.steps": steps,
    }
    return partial(_simulated, "eight-on-a-switch", overrides)


def _planned(nodes: int) -> Cost:
    return partial(_simulated, "gpt-70b-1024", {"topology.workers": nodes})


def _cohort(options: Options) -> float:
    star = {"generator": "star", "workers": 131072, "bandwidth": "1 Gbps", "latency": "50 us"}
    cohort = {"name": "fedbuff", "concurrency": 100, "buffer": 100, "server_trains": False}
    plan: dict[str, Any] = {"name": "cohort", "workload": "mnist_mlp", "algorithm": cohort, "topology": star}
    return _simulated(plan | {"stop": {"steps": 100}, "numerics": "none"}, {}, options)


def _swept(options: Options) -> float:
    """Return the wall time of a sweep of 200 short points on all cores."""
    import simcluster

    with tempfile.TemporaryDirectory() as out:
        began_s = time.perf_counter()
        values = {"seed": list(range(200))}
        simcluster.sweep("quickstart", values, overrides={"stop.steps": 5}, out=f"{out}/sweep", options=options)
        return time.perf_counter() - began_s


def _served(options: Options) -> float:
    """Return the CPU seconds of 60 requests to a model of SmolLM2's shape on three nodes, timing
    only.
    """
    from simcluster.lm.load.arrivals import OfferedRequest
    from simcluster.lm.serving.bench import BenchTarget, bench_cluster
    from simcluster.topology import loads

    topology = loads("{generator: star, workers: 3, device: raspberry-pi-4, bandwidth: 1 Gbps, latency: 100 us}")
    requests = [OfferedRequest(number * 1.0, 100, 64) for number in range(60)]
    began_s = time.process_time()
    bench_cluster(BenchTarget("smollm2", placement="pipeline"), topology, requests, options=options)
    return time.process_time() - began_s


def _on_two_hosts(options: Options) -> float:
    """Return the wall time of a step of two hosts that average 25 MB of gradients over a shaped
    link.
    """
    from simcluster.topology import loads

    words = "{generator: star, workers: 2, device: {flops: 1 GFLOP/s}, bandwidth: 10 Gbps, latency: 0 s}"
    with tempfile.TemporaryDirectory() as folder, hosts_of(loads(words)) as hosts:
        (Path(folder) / "star.yaml").write_text(words)
        command = _real_run(folder, "eight-on-a-switch", options, "--topology", f"{folder}/star.yaml")
        launch(hosts, dict.fromkeys(loads(words).workers, 0.0), make_key(Path(folder)), *command)
        return _step_s(folder)


def _on_this_machine(options: Options) -> float:
    """Return the wall time of a step of four nodes on this machine that average 25 MB of
    gradients.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = "{generator: star, workers: 4, device: {flops: 1 GFLOP/s}, bandwidth: 10 Gbps, latency: 0 s}"
        (Path(folder) / "star.yaml").write_text(words)
        command = _real_run(folder, "eight-on-a-switch", options, "--topology", f"{folder}/star.yaml")
        subprocess.run([sys.executable, "-m", "simcluster", *command], check=True, capture_output=True, text=True)
        return _step_s(folder)


def _real_run(folder: str, experiment: str, options: Options, *more: str) -> list[str]:
    model = "workload={name: mnist_mlp, hidden: 7900, batch_size: 8}"  # 6.3 million weights of 4 bytes
    settings = ("algorithm={name: all_reduce_dp}", model, "stop={steps: 30}", "evaluate_every=30")
    sets = [word for setting in settings for word in ("--set", setting)]
    command = ["run", experiment, "--backend", "sockets", "--out", f"{folder}/run", "--no-report"]
    return [*command, *sets, *_flags(options), *more]


def _flags(options: Options) -> list[str]:
    """Return *options* as command-line arguments."""
    return [word for name, value in options.items() for word in ("--option", f"{name}={str(value).lower()}")]


def _step_s(folder: str) -> float:
    """Return the wall time per step, from the summary of the run in *folder*."""
    summary = json.loads((Path(folder) / "run" / "summary.json").read_text())
    return float(summary["elapsed_s"]) / int(summary["steps"])


def _script(options: Options) -> float:
    """Return the wall time of a step of a simulated DDP script with four ranks."""
    flags = _flags(options)
    with tempfile.TemporaryDirectory() as folder:
        topology = Path(folder) / "star.yaml"
        topology.write_text(script_steps.TOPOLOGY)
        command = [sys.executable, "-m", "simcluster", "run", "--topology", str(topology), "--out", f"{folder}/run"]
        command += ["--no-report", *flags, "--script", script_steps.__file__, "--", "mlp"]
        return script_steps.step_s(command)


LOADS: Mapping[str, Load] = {
    "quickstart": Load("the quickstart: `sync_ps`, 5 nodes, values", _trained("sync_ps", 200)),
    "edp": Load("`edp`, 5 nodes, values", _trained("edp", 200)),
    "all_reduce": Load("`all_reduce_dp`, 5 nodes, values", _trained("all_reduce_dp", 200)),
    "plan": Load("a 70B plan on 1,024 nodes", _planned(1024), ("rounds",), pairs=1),
    "large plan": Load("a 70B plan on 16,384 nodes", _planned(16384), (), pairs=1),
    "servers": Load("`sync_ps`, 64 nodes, times only", _timed("sync_ps", 64, 100)),
    "many servers": Load("`sync_ps`, 1,024 nodes, times only", _timed("sync_ps", 1024, 10)),
    "ring": Load("`all_reduce_dp`, 64 nodes, times only", _timed("all_reduce_dp", 64, 5)),
    "clients": Load("131,072 clients, 100 of them trained at a time", _cohort, pairs=1),
    "sweep": Load("a sweep of 200 short points", _swept, pairs=2),
    "served": Load("SmolLM2 served by three nodes, times only", _served),
    "two hosts": Load("sockets: 25 MB between two hosts at 10 Gbps, a step", _on_two_hosts, REAL_SHORTCUTS),
    "local": Load("sockets: 25 MB among four local nodes, a step", _on_this_machine, REAL_SHORTCUTS),
    "script": Load("a DDP script of four ranks, a step", _script),
}


if __name__ == "__main__":
    main()
