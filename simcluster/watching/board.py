"""The state of a run in progress: telemetry of the nodes, rates, history, predicted end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

WINDOW_S = 5.0
"""The shortest window for rates: between two heartbeats, a rate is mostly noise."""

HISTORY = 600
"""Limit on the moments in a history.

Beyond it, every second moment is dropped, and the interval doubles.
"""

CONFIG_CHARACTERS = 200_000
"""Limit on the text of the experiment in a RunInfo; a longer text is cut off."""

MOMENTS = 64
"""Limit on the moments that are kept within the window of a rate."""


class PlainModel(BaseModel):
    """A model of plain, immutable values that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeTelemetry(PlainModel):
    """The state of one node, as its backend knows it.

    - *silent_s*: seconds since the last message from the node; None if there was none.
    - *compute_s*: seconds during which its device has worked, as far as known.
    - *eval_loss*, *eval_accuracy*: results on held-out samples with its weights of *eval_step*, if
      it is evaluated.
    - *rss_bytes*: resident memory of its process. *cpu_percent*: in percent of one core. Both, and
      the numbers of its machine, are None if the system does not provide them.
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
    """The traffic of a link in both directions; without a topology, of a pair of nodes."""

    name: str
    bytes_forward: int = 0
    bytes_backward: int = 0
    capacity_Bps: float | None = None


class Telemetry(PlainModel):
    """The state of a run's nodes, links and faults at *elapsed_s* of its clock."""

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
    """A drawing of a topology for a page."""

    spots: list[Spot] = []
    lines: list[Line] = []


class RunInfo(PlainModel):
    """The description of a run, which is sent once.

    *nodes* are the names of the ranks in order, *steps* the planned steps of each, if known.
    *config* is the text of the resolved experiment, for people. *folder* is the directory on the
    launcher's machine for the results.
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
    """Return *value* with None for each number that is not finite, which JSON cannot express."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


EVALUATED = ("eval_loss", "eval_accuracy", "eval_step")
"""The fields of the last evaluation, both of a node and of the run."""


class TelemetryBoard:
    """The board of one run: it takes telemetry, and computes the state of the run from it."""

    def __init__(self, run: RunInfo) -> None:
        self.run = run
        self.state, self.error = "gathering", ""
        self.last: Telemetry | None = None
        self.history: list[dict[str, Any]] = []
        self._moments: list[Telemetry] = []  # telemetry of the last WINDOW_S, and one before
        self._before: dict[str, NodeTelemetry] = {}  # the nodes in the first of _moments, by name
        self._keep_every = self._since_kept = 1

    def add(self, telemetry: Telemetry) -> None:
        """Add *telemetry*; ignore it if it is older than the last."""
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
        """Note the end of the run; *error* is "" if it succeeded."""
        self.state, self.error = ("failed" if error else "done"), error

    @property
    def steps(self) -> int:
        """The step of the run, which is the step of the slowest worker that is not lost."""
        return min((node.step for node in self.workers()), default=0)

    @property
    def loss(self) -> float | None:
        """The mean of the latest finite losses of all nodes; None if there are none."""
        losses = [node.loss for node in self._nodes() if node.loss is not None and math.isfinite(node.loss)]
        return sum(losses) / len(losses) if losses else None

    @property
    def evaluation(self) -> dict[str, float | None]:
        """The last evaluation, by the keys of EVALUATED.

        It is that of the lowest rank with an evaluation, preferably of a rank that is not lost.
        """
        found = [node for node in self._nodes() if node.eval_step is not None]
        node = min(found, key=lambda node: (node.state == "lost", node.rank), default=None)
        return {key: getattr(node, key, None) for key in EVALUATED}

    @property
    def steps_per_s(self) -> float:
        return min((self.rate_of(node) for node in self.workers()), default=0.0)

    def rate_of(self, node: NodeTelemetry) -> float:
        """Return the steps per second of *node*, an entry of `last`, over the last seconds."""
        span_s = self._span_s()
        return (node.step - self._earlier(node).step) / span_s if span_s else 0.0

    def compute_of(self, node: NodeTelemetry) -> float | None:
        """Return the compute seconds per step of *node* over the last seconds; None if unknown."""
        before = self._earlier(node)
        steps, compute_s = node.step - before.step, node.compute_s - before.compute_s
        return compute_s / steps if steps > 0 and compute_s > 0 else None

    def link_rates(self) -> dict[str, tuple[float, float]]:
        """Return name of a link -> (bytes per second forward, backward)."""
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
        """The time, on the run's clock, of the last step at the current rate; None if unknown."""
        if self.last is None or self.run.steps is None or self.state != "running" or not self.steps_per_s:
            return None
        return self.last.elapsed_s + max(0, self.run.steps - self.steps) / self.steps_per_s

    def workers(self) -> list[NodeTelemetry]:
        """Return the nodes whose steps are the progress of the run.

        Rank 0 is left out if there are others: as a server, it counts the steps of all workers.
        """
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
        """Return *node* as it was at the start of the window."""
        return self._before.get(node.name) or NodeTelemetry(name=node.name, rank=node.rank, state="expected")

    def _span_s(self) -> float:
        return self._moments[-1].elapsed_s - self._moments[0].elapsed_s if self._moments else 0.0
