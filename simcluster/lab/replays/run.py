"""Replay a real run in the simulator: the same code, in the recorded order, with equal weights."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from simcluster.backend import simulator
from simcluster.errors import ABSENT, NotReplayable, ReplayDiverged, UsageError
from simcluster.experiment.needed_memory import predict_memory
from simcluster.experiment.node import remember
from simcluster.experiment.preflight import check_memory
from simcluster.experiment.read.read import read_experiment
from simcluster.fault_plans.kinds import NEVER_JOINED, too_late
from simcluster.job import ClusterJob
from simcluster.paths.given_path import given_path
from simcluster.process.kernels import heed_portable
from simcluster.results import Run, load_run
from simcluster.runs.calls import SCRIPT
from simcluster.runs.destination import check_folder
from simcluster.runs.event_order import DamagedOrder, EventOrder, unpack
from simcluster.runs.folder import ORDER, RunFolder
from simcluster.runs.record import RunRecord
from simcluster.runs.write import write_run
from simcluster.version import __version__


@dataclass(frozen=True)
class ReplayResult:
    """A replay that matched the recorded run: its *run*, and node -> hash of its final weights."""

    run: Run
    events: int
    callbacks: int
    wall_s: float
    weights: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        return {
            "of": self.run.summary["replay"]["of"],
            "folder": str(self.run.folder),
            "matches": True,
            "events": self.events,
            "callbacks": self.callbacks,
            "elapsed_s": self.run.summary["elapsed_s"],
            "wall_s": self.wall_s,
            "weights_sha256": self.weights,
        }


def replay(run: str | Path | Run, *, out: str | Path | None = None, report: bool = True) -> ReplayResult:
    """Repeat *run*, a run on sockets, in the simulator in its recorded order; write the replay.

    The replay has the recorded times. Its folder is *out*, or the run's folder name with "-replay"
    appended if None. Raise NotReplayable or UsageError before anything is written; ReplayDiverged,
    with the first difference, if the code behaves differently this time.
    """
    recorded = run if isinstance(run, Run) else load_run(run)
    orders = read_orders(recorded)
    portable = recorded.summary.get("portable") is True
    heed_portable({"portable": portable})
    folder = given_path(out) if out is not None else recorded.folder.with_name(recorded.folder.name + "-replay")
    plan = read_experiment(recorded.config, backend="sim")
    check_folder(folder)
    needed = check_memory(plan)
    job = ClusterJob(plan.topology.workers, json.dumps(plan.document), plan.seed, topology=plan.topology)
    if (shortcuts := recorded.summary.get("shortcuts")) is not None:
        # Shortcuts change how often an exchange calls back, and the recorded order counts
        # callbacks.
        job.options["shortcuts"] = shortcuts
    remember(job.config_json, plan)
    began_s = time.perf_counter()  # this time is only reported
    record = simulator().replay(job, orders)
    predict_memory(record, needed)
    record.wall_s = time.perf_counter() - began_s
    weights = check_same(recorded, record)
    record.extra["lost"] = recorded.summary.get("lost", {})
    record.extra["portable"] = portable
    record.extra["replay"] = {"of": str(recorded.folder), "matches": True}
    written = Run(write_run(folder, plan.document, plan.topology, record, __version__))
    if report:
        from simcluster.lab.reports.report import write_report

        write_report(written, plan.topology)
    events = sum(len(order.events.kinds) for order in orders)
    return ReplayResult(written, events, sum(order.callbacks or 0 for order in orders), record.wall_s, weights)


def check_same(recorded: Run, record: RunRecord) -> dict[str, str]:
    """Return node -> the hash of its final weights. Lost nodes are left out.

    Raise ReplayDiverged if a hash differs from the recorded one.
    """
    weights: dict[str, str] = {}
    for node in record.nodes:
        expected = recorded.summary["nodes"][node.name]["weights_sha256"]
        if expected is None:  # no weights: the node was lost
            continue
        if node.weights_sha256 != expected:
            place = first_difference(recorded, record) or "its end"
            how = f"its weights are {node.weights_sha256}, but {expected} in the record"
            raise ReplayDiverged(node.rank, node.name, place, how)
        weights[node.name] = expected
    return weights


def first_difference(recorded: Run, record: RunRecord) -> str | None:
    """Describe the earliest recorded metric that differs in the replay; None if all are equal."""

    def same(then: tuple[Any, ...], again: tuple[Any, ...]) -> bool:
        # NaN counts as equal to NaN.
        return then == again or (then[:2] == again[:2] and then[2] != then[2] and again[2] != again[2])

    table = recorded.metrics
    table = table[~table["name"].str.startswith("eval_")]
    found: list[tuple[float, str]] = []
    for node in record.nodes:
        rows = table.loc[table["node"] == node.name, ["time_s", "step", "name", "value"]]
        now = [(m.step, m.name, m.value) for m in node.metrics if not m.name.startswith("eval_")]
        for then, again in zip(rows.itertuples(index=False, name=None), [*now, None], strict=False):
            if again is None or not same(then[1:], again):
                said = "nothing" if again is None else f"{again[1]} {again[2]!r} at step {again[0]}"
                what = f"step {then[1]} of {node.name} ({said}, recorded {then[2]} {then[3]!r})"
                found.append((then[0], what))
                break
    return min(found)[1] if found else None


def read_orders(run: RunFolder) -> list[EventOrder]:
    """Return each rank's recorded order of events. The order of a lost node may be incomplete.

    Raise NotReplayable if the run cannot be replayed, UsageError if the file is damaged.
    """
    path = run.folder / ORDER
    if run.summary["algorithm"] == SCRIPT:
        expected = "an algorithm's run; run the script again in the simulator, and compare"
        raise NotReplayable(f"{run.folder}, a script's", expected)
    if run.summary.get("resumed"):
        raise NotReplayable("a run that was resumed, whose checkpoint may be gone", "one that did not resume")
    if not path.is_file():
        why = "the simulator's own order is its seed" if run.summary["backend"] == "sim" else "order=false, or older"
        raise NotReplayable(f"no {ORDER} in {run.folder} ({why})", "a run on sockets that recorded its order")
    try:
        packed = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, list[bytes]])
        orders = {name: unpack(chunks) for name, chunks in packed.items()}
    except (OSError, msgspec.MsgspecError, DamagedOrder) as error:
        raise UsageError(ORDER, f"something else in {path}", f"orders of nodes ({error})") from None
    kernels = {name: node.get("numerics") or {} for name, node in run.summary["nodes"].items()}
    away = [f"{name} on {found['device']}" for name, found in kernels.items() if found.get("device", "cpu") != "cpu"]
    if away:
        raise NotReplayable(", ".join(away), "nodes on the CPU, whose kernels give the same bits again")
    lost = run.summary.get("lost", {})
    late = [name for name, node in run.summary["nodes"].items() if node.get("incarnation")]
    late += [name for name, reason in lost.items() if reason in (NEVER_JOINED, too_late(ABSENT))]
    if late:
        raise NotReplayable(f"{', '.join(late)}, which joined late or rejoined", "a run that every node starts, once")
    for name in run.summary["nodes"]:
        if name not in orders or not (orders[name].whole or name in lost):
            expected = "a run whose nodes handed in their orders, or were lost"
            raise NotReplayable(f"an incomplete order of {name}", expected)
    return [orders[name] for name in run.summary["nodes"]]
