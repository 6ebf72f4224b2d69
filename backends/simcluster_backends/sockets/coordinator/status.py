"""Return the state of a coordinator and its run as JSON values and in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from simcluster import __version__
from simcluster.watching.board import TelemetryBoard
from simcluster.watching.status import WARNINGS, run_status
from simcluster_backends.sockets.coordinator.membership import WorkerMembership


def status(membership: WorkerMembership, board: TelemetryBoard | None, now_s: float) -> dict[str, Any]:
    """Return the state as plain JSON values; numbers that are not finite become None."""
    return {
        "version": __version__,
        "epoch": membership.epoch,
        "running": membership.running,
        "dead_s": membership.dead_s,
        "workers": [
            {
                "name": worker.name,
                "rank": worker.rank,
                "state": worker.state.value,
                "address": worker.address,
                "silent_s": max(0.0, now_s - worker.heard_s),
            }
            for worker in membership.workers.values()
        ],
        "run": run_status(board) if board is not None else None,
    }


_OF_RUN = {
    "elapsed_s": ("elapsed_seconds", "The run's clock."),
    "step": ("step", "Steps that the last of the workers has made."),
    "steps": ("steps_planned", "Planned steps of each worker."),
    "loss": ("loss", "Mean of the nodes' last training losses."),
    "eval_loss": ("eval_loss", "Loss on held-out samples, at the last evaluation."),
    "eval_accuracy": ("eval_accuracy", "Accuracy on held-out samples, at the last evaluation."),
    "eval_step": ("eval_step", "Step of the weights of the last evaluation."),
    "steps_per_s": ("steps_per_second", "Rate of the last of the workers."),
    "remaining_s": ("predicted_remaining_seconds", "Time until all steps are done, at the current rate."),
}
_OF_NODE = {
    "step": ("node_step", "The node's last step."),
    "loss": ("node_loss", "The node's last training loss."),
    "staleness": ("node_staleness", "The node's last recorded staleness."),
    "steps_per_s": ("node_steps_per_second", "The node's rate."),
    "compute_s_per_step": ("node_compute_seconds_per_step", "Compute time per step over the node's last steps."),
    "silent_s": ("node_silent_seconds", "Time since the node was last heard from."),
    "bytes_sent": ("node_sent_bytes", "Bytes of messages that the node has sent."),
    "bytes_received": ("node_received_bytes", "Bytes of messages that the node has received."),
    "rss_bytes": ("node_resident_bytes", "Resident memory of the node's process."),
    "cpu_percent": ("node_cpu_percent", "Processor time of the node's process, in percent of one core."),
    "machine_cpu_percent": ("node_machine_cpu_percent", "Processor time used on the node's machine, of all cores."),
    "machine_memory_percent": ("node_machine_memory_percent", "Memory used on the node's machine."),
    "temperature_C": ("node_temperature_celsius", "Temperature of the node's processor, or of its hottest sensor."),
}
_OF_LINK = {
    "bytes": ("link_bytes", "Bytes that the link has carried, both ways."),
    "forward_Bps": ("link_forward_bytes_per_second", "Rate from the link's first end to its second."),
    "backward_Bps": ("link_backward_bytes_per_second", "Rate from the link's second end to its first."),
    "busy_fraction": ("link_busy_ratio", "Rate of the busier direction as a share of the link's bandwidth."),
}


class _Collector(Collector):
    """A collector that yields *found*, a result of `status`, as Prometheus metric families."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        found, run = self._found, self._found["run"]
        yield _family("epoch", "Epochs so far.", [({}, found["epoch"])])
        states = [worker["state"] for worker in found["workers"]]
        counts = [({"state": state}, states.count(state)) for state in sorted(set(states))]
        yield _family("workers", "Workers by state.", counts, ["state"])
        if run is None:
            return
        yield _family("run_state", "1 for the state that the run is in.", [({"state": run["state"]}, 1)], ["state"])
        for key, (name, help_) in _OF_RUN.items():
            yield _family(name, help_, [({}, run[key])])
        for key, (name, help_) in _OF_NODE.items():
            rows = [({"node": node["name"], "rank": str(node["rank"])}, node[key]) for node in run["nodes"]]
            yield _family(name, help_, rows, ["node", "rank"])
        nodes = [({"node": node["name"], "rank": str(node["rank"])}, node["state"]) for node in run["nodes"]]
        up = [(labels, state not in ("lost", "expected")) for labels, state in nodes]
        yield _family("node_up", "Whether the node takes part.", up, ["node", "rank"])
        slow = [({"node": found["name"]}, found["ratio"]) for found in run["warnings"] if found["kind"] == "straggler"]
        yield _family("node_slowness_ratio", "How many times slower a straggler is than the others.", slow, ["node"])
        kinds = [warning["kind"] for warning in run["warnings"]]
        warned = [({"kind": kind}, kinds.count(kind)) for kind in WARNINGS]
        yield _family("warnings", "Warnings by kind.", warned, ["kind"])
        for key, (name, help_) in _OF_LINK.items():
            yield _family(name, help_, [({"link": link["name"]}, link[key]) for link in run["links"]], ["link"])


def _family(
    name: str, help_: str, rows: list[tuple[dict[str, str], Any]], labels: list[str] | None = None
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"simcluster_{name}", help_, labels=labels or [])
    for values, value in rows:
        if value is not None:
            family.add_metric([values[label] for label in labels or []], float(value))
    return family


def prometheus(found: dict[str, Any]) -> bytes:
    """Return *found*, a result of `status`, in Prometheus's text format."""
    registry = CollectorRegistry()
    registry.register(_Collector(found))
    return generate_latest(registry)
