"""The state of a run in progress: the latest telemetry of every node, rates, a bounded history, the predicted end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

WINDOW_S = 5.0
"""Minimum window of rates: from one heartbeat to the next a rate is mostly noise."""

HISTORY = 600
"""Number of moments kept; when exceeded, every second one is dropped, and half as many are kept from then on."""

CONFIG_CHARACTERS = 200_000
"""Limit of the experiment in a description; a longer one is cut off."""

MOMENTS = 64
"""Maximum number of moments between the two that a rate is computed from."""


class PlainModel(BaseModel):
    """Plain immutable values; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeTelemetry(PlainModel):
    """One node, as its backend sees it. *silent_s* is the time since it was last heard, None if it never was.

    *compute_s* is the time that its device has worked, as far as known. *eval_loss* and *eval_accuracy* are those of
    held-out samples with its weights of *eval_step*, if it is evaluated. What its process and machine use is None where
    the system does not tell: *rss_bytes* is resident memory, *cpu_percent* is in percent of one core.
    """

    name: str
    rank: int
    state: str
    step: int = 0
    loss: float | None = None
    staleness: float | None = None
    silent_s: float | None = None
    computing: bool = False
    compute_s: float = 0.0
    waits: list[str] = []
    stalled_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    metrics: dict[str, float | None] = {}
    rss_bytes: float | None = None
    cpu_percent: float | None = None
    machine_cpu_percent: float | None = None
    machine_memory_percent: float | None = None
    temperature_C: float | None = None
    eval_loss: float | None = None
    eval_accuracy: float | None = None
    eval_step: int | None = None
    reason: str = ""


class LinkTelemetry(PlainModel):
    """Traffic each way on a link, or between two nodes if no topology is known; *capacity_Bps* if known."""

    name: str
    bytes_forward: int = 0
    bytes_backward: int = 0
    capacity_Bps: float | None = None


class Telemetry(PlainModel):
    """A run at *elapsed_s* of its clock."""

    elapsed_s: float
    nodes: list[NodeTelemetry] = []
    links: list[LinkTelemetry] = []
    faults: list[dict[str, Any]] = []


class Spot(PlainModel):
    """The position of a node on a map, in units of about one link."""

    name: str
    kind: str
    x: float
    y: float


class Line(PlainModel):
    """A link on a map, between two spots."""

    name: str
    a: str
    b: str


class Map(PlainModel):
    """A topology as drawn on a page."""

    spots: list[Spot] = []
    lines: list[Line] = []


class RunInfo(PlainModel):
    """The description of a run, sent once. *nodes* are its ranks in order, *steps* the steps of each, if known.

    *config* is its resolved experiment, for readers; *folder* is where its launcher writes its results.
    """

    name: str
    nodes: list[str]
    rendezvous: str = ""
    algorithm: str = ""
    topology: str = ""
    backend: str = "sockets"
    seed: int = 0
    steps: int | None = None
    attempt: int = 1
    map: Map | None = None
    config: Annotated[str, Field(max_length=CONFIG_CHARACTERS)] = ""
    folder: Annotated[str, Field(max_length=4096)] = ""


def plain(value: Any) -> Any:
    """Return *value* as JSON can hold it: a number that is not finite becomes None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


EVALUATED = ("eval_loss", "eval_accuracy", "eval_step")
"""The last evaluation of a node, and of the run."""


class TelemetryBoard:
    """The telemetry of one run."""

    def __init__(self, run: RunInfo) -> None:
        self.run = run
        self.state, self.error = "gathering", ""
        self.last: Telemetry | None = None
        self.history: list[dict[str, Any]] = []
        self._moments: list[Telemetry] = []  # the last WINDOW_S, and one before that
        self._before: dict[str, NodeTelemetry] = {}  # the nodes of the first moment
        self._keep_every = self._since_kept = 1

    def add(self, telemetry: Telemetry) -> None:
        """Add the current state; ignore one that is older than the last."""
        if self.last is not None and telemetry.elapsed_s < self.last.elapsed_s:
            return
        if self.state == "gathering" and telemetry.elapsed_s > 0:
            self.state = "running"
        self.last = telemetry
        self._moments.append(telemetry)
        while len(self._moments) > 2 and telemetry.elapsed_s - self._moments[1].elapsed_s >= WINDOW_S:
            del self._moments[0]
        if len(self._moments) > MOMENTS:
            del self._moments[1:-1:2]
        self._before = {node.name: node for node in self._moments[0].nodes}
        self._since_kept += 1
        if self._since_kept >= self._keep_every:
            self._since_kept = 0
            self._keep(telemetry)

    @property
    def goes_on(self) -> bool:
        return self.state in ("gathering", "running")

    def end(self, error: str) -> None:
        """Note the end of the run."""
        self.state, self.error = ("failed" if error else "done"), error

    @property
    def steps(self) -> int:
        """The run's step: that of the slowest worker not lost."""
        return min((node.step for node in self.workers()), default=0)

    @property
    def loss(self) -> float | None:
        """The mean of the nodes' latest losses."""
        losses = [node.loss for node in self._nodes() if node.loss is not None and math.isfinite(node.loss)]
        return sum(losses) / len(losses) if losses else None

    @property
    def evaluation(self) -> dict[str, float | None]:
        """The last evaluation of the lowest rank not lost that has made one: EVALUATED and their values."""
        found = [node for node in self._nodes() if node.eval_step is not None]
        node = min(found, key=lambda node: (node.state == "lost", node.rank), default=None)
        return {key: getattr(node, key, None) for key in EVALUATED}

    @property
    def steps_per_s(self) -> float:
        return min((self.rate_of(node) for node in self.workers()), default=0.0)

    def rate_of(self, node: NodeTelemetry) -> float:
        """Return the steps per second of *node*, from the last telemetry, over the last seconds."""
        span_s = self._span_s()
        return (node.step - self._earlier(node).step) / span_s if span_s else 0.0

    def compute_of(self, node: NodeTelemetry) -> float | None:
        """Return the compute seconds per step of *node* over the last seconds; None if unknown."""
        before = self._earlier(node)
        steps, compute_s = node.step - before.step, node.compute_s - before.compute_s
        return compute_s / steps if steps > 0 and compute_s > 0 else None

    def link_rates(self) -> dict[str, tuple[float, float]]:
        """Return the bytes per second each way, by link."""
        first = {link.name: link for link in self._moments[0].links} if self._moments else {}
        span_s = self._span_s()
        rates = {}
        for link in self.last.links if self.last is not None else ():
            before = first.get(link.name, LinkTelemetry(name=link.name))
            ways = (link.bytes_forward - before.bytes_forward, link.bytes_backward - before.bytes_backward)
            rates[link.name] = (ways[0] / span_s, ways[1] / span_s) if span_s else (0.0, 0.0)
        return rates

    @property
    def predicted_end_s(self) -> float | None:
        """The time, on the run's clock, of its last step at the rate of the last seconds."""
        if self.last is None or self.run.steps is None or self.state != "running" or not self.steps_per_s:
            return None
        return self.last.elapsed_s + max(0, self.run.steps - self.steps) / self.steps_per_s

    def workers(self) -> list[NodeTelemetry]:
        """Return the nodes that count for progress: not rank 0, since a server's steps are those of all workers."""
        nodes = [node for node in self._nodes() if node.state != "lost"]
        return [node for node in nodes if node.rank > 0] or nodes

    def _keep(self, telemetry: Telemetry) -> None:
        staleness = [node.staleness for node in telemetry.nodes if node.staleness is not None]
        self.history.append(
            {
                "elapsed_s": telemetry.elapsed_s,
                "step": self.steps,
                "loss": self.loss,
                **self.evaluation,
                "steps_per_s": self.steps_per_s,
                "staleness": max(staleness, default=None),
                "bytes_sent": sum(node.bytes_sent for node in telemetry.nodes),
                "alive": sum(node.state not in ("lost", "expected") for node in telemetry.nodes),
            }
        )
        if len(self.history) > HISTORY:
            del self.history[1::2]
            self._keep_every *= 2

    def _nodes(self) -> Sequence[NodeTelemetry]:
        return self.last.nodes if self.last is not None else ()

    def _earlier(self, node: NodeTelemetry) -> NodeTelemetry:
        """Return the same node at the first moment."""
        return self._before.get(node.name) or NodeTelemetry(name=node.name, rank=node.rank, state="expected")

    def _span_s(self) -> float:
        return self._moments[-1].elapsed_s - self._moments[0].elapsed_s if self._moments else 0.0
