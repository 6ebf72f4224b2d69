"""The memory of processes that answer a prompt with SmolLM2, relative to their share of its
weights.

The baseline is an "empty" process, which has answered a prompt with a model of 100 kB. Its peak
covers Python, torch, torch's kernels, and the node's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from simcluster.lm.formats import Precision
from simcluster.lm.models.open import open_model
from simcluster.lm.plan.shape import with_held_weights
from simcluster.lm.request import Request
from simcluster.lm.serving.placement import held_bytes, limits_of
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import star
from simcluster.units import format_size
from tests.support.gguf_models import write_random_blocks
from tests.support.tiny_models import model_of, write_folder
from tools.memory_table.cases import PATIENT

MODEL: Final = "smollm2"
PROMPT, ANSWER = 40, 32
MOST_RATIO: Final = 1.2
"""The limit on a process's memory beyond an empty process's, relative to its share of the
weights.
"""

LAYOUTS: Final = {
    "alone": PlacementLayout("alone", (0,), (30,)),
    "29 + 1 layers": PlacementLayout("pipeline", (0, 1), (29, 1)),
    "10 + 10 + 10 layers": PlacementLayout("pipeline", (0, 1, 2), (10, 10, 10)),
    "tensor, 3 nodes": PlacementLayout("tensor", (0, 1, 2), (30, 30, 30)),
    "replicas, 2 nodes": PlacementLayout("replicas", (0, 1), (30, 30)),
}
CASES: Final[list[tuple[str, Precision]]] = [
    *((name, "f32") for name in LAYOUTS),
    ("alone", "bf16"),
    ("alone", "int8"),
    ("alone", "q4"),
]


class Held(msgspec.Struct, frozen=True):
    """The memory of one process.

    Measured are its peak, the memory before it loaded the model, and the peak of an empty process.
    *planned_bytes* and *weight_bytes* are its weights as planned and as stored.
    """

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
        """The ratio with another baseline: the process's own memory before it loaded the model.

        At that time torch has not yet multiplied matrices, so the ratio includes the memory that it
        allocates for this.
        """
        return (self.peak_bytes - self.before_bytes) / self.planned_bytes

    @property
    def is_within(self) -> bool:
        return self.ratio <= MOST_RATIO


def held(scratch: Path) -> list[Held]:
    """Answer a prompt with every placement. Return the memory of each process."""
    folder = write_folder(scratch / "tiny", model_of("llama", tie_word_embeddings=True))
    (empty,) = _answered(str(folder), "alone", PlacementLayout("alone", (0,), (4,)), "f32")
    found = [one for name, precision in CASES for one in _answered(MODEL, name, LAYOUTS[name], precision)]
    large = str(write_random_blocks(scratch / "1b.gguf", 16, 2048, 32, 8, 8192, 32_000))
    found += _answered(large, "5 + 5 + 6 layers of 1.04 B", PlacementLayout("pipeline", (0, 1, 2), (5, 5, 6)), "q4")
    return [msgspec.structs.replace(one, empty_bytes=empty.peak_bytes) for one in found]


def _answered(model: str, name: str, layout: PlacementLayout, precision: Precision) -> list[Held]:
    """Answer a prompt with *model*, placed as *layout*.

    Return the memory of each process in the run.
    """
    file = open_model(model)
    shape = with_held_weights(file.shape, precision)
    cluster = star(len(layout.ranks))
    limits = limits_of(layout, cluster, shape, file.context)
    prompt = tuple(7 * i % shape.vocabulary for i in range(PROMPT))
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
    """Return the sentences that precede the table."""
    beyond = sum(not row.is_within for row in rows)
    return (
        f"Real processes that answer a prompt of {PROMPT} tokens with {ANSWER} by SmolLM2, and by a model of 1.04 "
        f"billion random weights in Q4_K_M. The limit is {MOST_RATIO:g} times the planned weights plus the empty "
        f"process, of {format_size(rows[0].empty_bytes)}; {beyond} of {len(rows)} processes are beyond it. The table "
        "has the process of each run with the largest ratio; its last column counts from before it loaded."
    )


def answering_table(rows: Sequence[Held]) -> list[str]:
    """Return the lines of the table. Each run is shown by its process with the largest ratio."""
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
