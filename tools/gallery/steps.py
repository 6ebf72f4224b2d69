"""The picture of an algorithm: the computations and messages of four nodes in a few simulated
steps.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import simcluster
from simcluster.results import Run
from simcluster.runs import words
from simcluster.runs.record import Span
from tools.gallery.svg import number, picture, text

NODES = ("n0", "n1", "n2", "n3")
TOPOLOGY: dict[str, Any] = {
    "name": "four on a switch, the last one slower",
    "nodes": {name: {"flops": "2 GFLOP/s" if name != "n3" else "1.25 GFLOP/s"} for name in NODES}
    | {"sw": {"kind": "switch"}},
    "links": [{"between": [name, "sw"], "bandwidth": "1 Gbps", "latency": "100 us"} for name in NODES],
}
DIGITS = {"name": "mnist_mlp", "hidden": 64, "batch_size": 32}
LAYERS = {"name": "gpt", "size": "tiny", "layers": 4, "width": 32, "heads": 4, "context": 16, "batch_size": 8}
EXPERTS = {"name": "mnist_moe", "hidden": 64, "expert_width": 256, "batch_size": 32}

WIDTH = 360.0
LEFT = 32.0
RIGHT = 12.0
TOP = 34.0
ROW = 26.0
BOTTOM = 26.0
BAR, TIP = 11.0, 5.5
MIDDLE = 1
"""The rank with the steps that are drawn. It is a worker in every algorithm."""


@dataclass(frozen=True)
class Scene:
    """The steps of *algorithm* to draw, with *settings*.

    The picture begins when rank 1 has ended step *first*, and ends when it has ended step *last*.
    """

    algorithm: str
    first: int = 3
    last: int = 5
    settings: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=lambda: DIGITS)

    @property
    def given(self) -> str:
        """The settings as text."""
        return ", ".join(f"{name} {value}" for name, value in self.settings.items())

    def experiment(self) -> dict[str, Any]:
        return {
            "name": self.algorithm,
            "topology": TOPOLOGY,
            "algorithm": {"name": self.algorithm, **self.settings},
            "workload": self.workload,
            "stop": {"steps": self.last + 4},
            "evaluate_every": 1000,
            "seed": 0,
        }


@dataclass(frozen=True)
class Message:
    """A message of *size_bytes* that leaves rank *source* at *start_s*, and reaches rank *target*
    at *end_s*.
    """

    source: int
    target: int
    start_s: float
    end_s: float
    size_bytes: int


def run(scene: Scene) -> Run:
    """Simulate *scene*. All data of the run is read before its directory is removed."""
    with tempfile.TemporaryDirectory() as folder:
        found = simcluster.run(scene.experiment(), backend="sim", out=Path(folder) / "run", report=False)
        assert found.spans
        assert not found.metrics.empty
    return found


def messages(spans: Sequence[tuple[int, Span]]) -> list[Message]:
    """Return the messages, each made of a send and its receipt.

    Messages with the same tag between two nodes arrive in the order in which they are sent.
    """
    sent: dict[tuple[int, int, str], deque[Span]] = defaultdict(deque)
    for rank, span in sorted(spans, key=lambda row: row[1].start_s):
        if span.kind == "send":
            sent[rank, span.peer, span.tag].append(span)
    found = []
    for rank, span in sorted(spans, key=lambda row: row[1].end_s):
        waiting = sent[span.peer, rank, span.tag] if span.kind == "recv" else None
        if waiting:
            begun = waiting.popleft()
            found.append(Message(span.peer, rank, begun.start_s, span.end_s, begun.size_bytes))
    return found


def draw(scene: Scene, found: Run) -> str:
    """Return the picture of *scene* for the run *found*."""
    start_s, end_s = window(scene, found)
    height = TOP + ROW * len(NODES) + BOTTOM
    plot = WIDTH - LEFT - RIGHT

    def x(time_s: float) -> float:
        return LEFT + plot * (time_s - start_s) / (end_s - start_s)

    def y(rank: int) -> float:
        return TOP + ROW * (rank + 0.5)

    rows = [f'<path class="row" d="M{number(LEFT)} {number(y(rank))}h{number(plot)}"/>' for rank in range(len(NODES))]
    names = [text(10, y(rank) + 4, name, "faint") for rank, name in enumerate(NODES)]
    shown = [row for row in found.spans if row[1].start_s < end_s and row[1].end_s > start_s]
    bars = [
        _bar(x(max(s.start_s, start_s)), x(min(s.end_s, end_s)), y(rank)) for rank, s in shown if s.kind == "compute"
    ]
    sent = [m for m in messages(found.spans) if m.start_s < end_s and m.end_s > start_s]
    largest = max((message.size_bytes for message in sent), default=1)
    lines = [_arrow(x(m.start_s), y(m.source), x(m.end_s), y(m.target), m.size_bytes / largest) for m in sent]
    clip = (
        f'<clipPath id="c"><rect x="{number(LEFT)}" y="0" width="{number(plot)}" height="{number(height)}"/></clipPath>'
    )
    steps = words.plural(scene.last - scene.first, "step")
    title = f"{scene.algorithm}: {steps} of {NODES[MIDDLE]}, {words.seconds(end_s - start_s)}"
    parts = [
        clip,
        text(10, 20, scene.algorithm, "name"),
        text(WIDTH - RIGHT, 20, f"{steps}, {words.seconds(end_s - start_s)}", "faint end"),
        *rows,
        *names,
        f'<g clip-path="url(#c)">{"".join(bars)}{"".join(lines)}</g>',
        text(LEFT, height - 9, scene.given or "time →", "faint"),
        text(WIDTH - RIGHT, height - 9, f"largest message {words.size(largest)}", "faint end"),
    ]
    return picture(WIDTH, height, title, parts)


def simulated(scene: Scene) -> str:
    """Simulate *scene*, and return its picture."""
    return draw(scene, run(scene))


def window(scene: Scene, found: Run) -> tuple[float, float]:
    """Return the times at which rank 1 ended steps *first* and *last* of *scene*."""
    rows = found.metrics[found.metrics["node"] == NODES[MIDDLE]].groupby("step")["time_s"].max()
    return float(rows[scene.first]), float(rows[scene.last])


def _bar(left: float, right: float, y: float) -> str:
    size = f'width="{number(max(right - left, 0.6))}" height="{number(BAR)}"'
    return f'<rect class="work" x="{number(left)}" y="{number(y - BAR / 2)}" {size} rx="1.5"/>'


def _arrow(x0: float, y0: float, x1: float, y1: float, share: float) -> str:
    """Return the arrow of a message between the edges of two rows.

    *share* is the message's size relative to the largest one.
    """
    down = 1 if y1 > y0 else -1
    start, end = y0 + down * BAR / 2, y1 - down * BAR / 2
    length = math.hypot(x1 - x0, end - start)
    ux, uy = (x1 - x0) / length, (end - start) / length
    back, side = (x1 - TIP * ux, end - TIP * uy), (TIP * 0.45 * uy, -TIP * 0.45 * ux)
    corners = ((x1, end), (back[0] + side[0], back[1] + side[1]), (back[0] - side[0], back[1] - side[1]))
    tip = "L".join(f"{number(x)} {number(y)}" for x, y in corners)
    line = f"M{number(x0)} {number(start)}L{number(back[0])} {number(back[1])}"
    return f'<path class="sent" stroke-width="{number(0.8 + share)}" d="{line}"/><path class="tip" d="M{tip}z"/>'
