"""What processes hold that answer a prompt with SmolLM2, against their share of its weights.

The empty process is one that has answered a prompt with a model of 100 kB: its peak is that of Python, torch, its
kernels, and the node's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from simcluster.lm.models.architecture import Precision
from simcluster.lm.models.open import open_model
from simcluster.lm.request import Request
from simcluster.lm.serving.on_cluster import shape_of_architecture
from simcluster.lm.serving.placing import held_bytes, limits_of
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import star
from simcluster.units import format_size
from tests.lm.models import tiny
from tests.lm.models.test_hugging_face import write
from tools.memory_table.cases import PATIENT

MODEL: Final = "smollm2"
EMPTY: Final = replace(tiny.HALVES, feed_forward=64, context=256)
PROMPT, ANSWER = 40, 32
MOST_RATIO: Final = 1.2
"""Of what a process holds above the empty one to its share of the weights."""

LAYOUTS: Final = {
    "alone": PlacementLayout("alone", (0,), (30,)),
    "29 + 1 layers": PlacementLayout("pipeline", (0, 1), (29, 1)),
    "10 + 10 + 10 layers": PlacementLayout("pipeline", (0, 1, 2), (10, 10, 10)),
    "tensor, 3 nodes": PlacementLayout("tensor", (0, 1, 2), (30, 30, 30)),
    "replicas, 2 nodes": PlacementLayout("replicas", (0, 1), (30, 30)),
}
CASES: Final[list[tuple[str, Precision]]] = [*((name, "f32") for name in LAYOUTS), ("alone", "bf16"), ("alone", "int8")]


class Held(msgspec.Struct, frozen=True):
    """One process: its peak, its memory before it loaded, its weights as planned and stored; the empty one's peak."""

    placement: str
    precision: str
    node: str
    layers: int
    peak_bytes: float
    before_bytes: float
    planned_bytes: float
    weight_bytes: float
    empty_bytes: float = 0.0

    @property
    def ratio(self) -> float:
        return (self.peak_bytes - self.empty_bytes) / self.planned_bytes

    @property
    def grown_ratio(self) -> float:
        """The same above its own memory before it loaded, when torch had multiplied nothing."""
        return (self.peak_bytes - self.before_bytes) / self.planned_bytes

    @property
    def is_within(self) -> bool:
        return self.ratio <= MOST_RATIO


def held(scratch: Path) -> list[Held]:
    """Answer a prompt at every placement, and return what each process held."""
    folder = write(scratch / "tiny", EMPTY)
    (empty,) = _answered(str(folder), "alone", PlacementLayout("alone", (0,), (EMPTY.layers,)), "f32")
    return [
        msgspec.structs.replace(one, empty_bytes=empty.peak_bytes)
        for name, precision in CASES
        for one in _answered(MODEL, name, LAYOUTS[name], precision)
    ]


def _answered(model: str, name: str, layout: PlacementLayout, precision: Precision) -> list[Held]:
    """Answer a prompt with *model* at *layout*; return what each process that took part held."""
    architecture = open_model(model).architecture
    shape = shape_of_architecture(architecture, precision, model)
    cluster = star(len(layout.ranks))
    limits = limits_of(layout, cluster, shape, architecture.context)
    prompt = tuple(7 * i % architecture.vocabulary for i in range(PROMPT))
    setup = Setup(model, shape, precision, "real", layout, limits, True, requests=(Request("0", prompt, ANSWER),))
    found = answer_all(setup, cluster, backend="sockets", options=PATIENT)
    return [
        Held(
            name, precision, node.node, node.layers, node.peak_memory_bytes, node.empty_memory_bytes,
            held_bytes(layout, shape, place)[0], node.weight_bytes,
        )
        for place, node in enumerate(found.nodes)
    ]  # fmt: skip


def words(rows: Sequence[Held]) -> str:
    """Return the sentences before the table."""
    beyond = sum(not row.is_within for row in rows)
    return (
        f"Real processes that answer a prompt of {PROMPT} tokens with {ANSWER} by SmolLM2. The limit is {MOST_RATIO:g} "
        f"times the planned weights plus the empty process, of {format_size(rows[0].empty_bytes)}; {beyond} of "
        f"{len(rows)} processes are beyond it. The table has the process of each run with the largest ratio; its last "
        "column counts from before it loaded."
    )


def answering_table(rows: Sequence[Held]) -> list[str]:
    """Return the lines of the table: the process of each run with the largest ratio."""
    worst: dict[tuple[str, str], Held] = {}
    for row in rows:
        run = (row.placement, row.precision)
        worst[run] = max(row, worst.get(run, row), key=lambda one: one.ratio)
    head = [
        "| placement | weights | node | peak | planned weights | stored | (peak - empty) / planned | grown / planned |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    return head + [
        f"| {row.placement} | {row.precision} | {row.node} | {format_size(row.peak_bytes)} | "
        f"{format_size(row.planned_bytes)} | {format_size(row.weight_bytes)} | "
        f"{row.ratio:.2f}{'' if row.is_within else ' (beyond)'} | {row.grown_ratio:.2f} |"
        for row in worst.values()
    ]
