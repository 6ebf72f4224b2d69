"""Published rows, and the time of a token of each as a sum of terms of its engine."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from itertools import pairwise
from typing import Final

from simcluster.lm.plan.engines import MOST_AT_ONCE, WITHOUT_DOT_PRODUCT
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.plan.times import TOKEN_BYTES, all_reduce_s, gathered_s, hop_s, pace, told_s
from simcluster.topology import Device, Topology, star
from simcluster.topology.presets.links import LINKS
from simcluster.units import format_bandwidth, format_latency
from tools.published_rows.models import shape_of_row

CONTEXT: Final = 64
"""Tokens before the timed one: the rows have prompts of a few tokens and answers of about 128."""

REFACTORED: Final = (0, 12)
"""The version of distributed-llama that was written anew; older ones are another engine."""

NUMBER_BYTES: Final = {"distributed-llama": 34 / 32}
"""Engine -> bytes of an activation, if these are not 2."""

OTHER_LINKS: Final = {"qsfp-200g": ("200 Gbps", "10 us"), "unstated": ("9.41 Gbps", "40 us"), "": ("1 Gbps", "0 s")}
"""Links that have no preset. One that the source does not state counts as 10 Gb/s Ethernet."""


@dataclass(frozen=True)
class Term:
    """Seconds of a row: *coefficient* times the product of parameters to their *powers*."""

    coefficient: float
    powers: Mapping[str, float]


@dataclass(frozen=True)
class PublishedRow:
    """A row of published.csv: the *measured_s* of a token of *model* on *nodes* in a *placement*.

    *memory_Bps* has the memory bandwidth that software reaches on each node.
    """

    engine: str
    version: str
    model: str
    format: str
    weight_bytes: float
    expert_bytes: float | None
    device: str
    part: str
    memory_Bps: tuple[float, ...]
    nodes: int
    placement: str
    link: str
    measured_s: float
    source: str
    where: str

    @cached_property
    def shape(self) -> ModelShape:
        """The model's shape, with the sizes of the row's weights."""
        bare = replace(shape_of_row(self.model), weight_bytes=self.weight_bytes, expert_bytes=self.expert_bytes)
        return replace(bare, table_bytes=None, number_bytes=NUMBER_BYTES.get(self.engine, 2.0))

    @cached_property
    def topology(self) -> Topology:
        """The row's nodes around a switch. Each of them has memory and no other limit."""
        if self.link in LINKS:
            preset = LINKS[self.link]
            rates = format_bandwidth(preset.bandwidth_Bps), format_latency(preset.latency_s)
        else:
            rates = OTHER_LINKS[self.link]
        bare = star(self.nodes, bandwidth=rates[0], latency=rates[1])
        each = self.memory_Bps * (self.nodes if len(self.memory_Bps) == 1 else 1)
        devices = [Device(self.device, 1e18, memory_Bps, computes_on=self.part) for memory_Bps in each]
        changed = {name: replace(bare.nodes[name], device=devices[i]) for i, name in enumerate(bare.workers)}
        return replace(bare, nodes={**bare.nodes, **changed})

    @property
    def is_old(self) -> bool:
        """Whether the row is of a version of distributed-llama before it was written anew."""
        return bool(self.version) and tuple(map(int, self.version.split(".")[:2])) < REFACTORED

    @property
    def group(self) -> str:
        """The engine, as far as rows share parameters."""
        if not self.is_old:
            return self.engine
        return f"{self.engine} old {'x86' if self.device.startswith('c3d') else 'arm'}"

    @property
    def setup(self) -> tuple[str, ...]:
        """What two rows have in common if they differ in placement or number of nodes alone."""
        return self.engine, self.version, self.model, self.format, self.device

    @cached_property
    def fixed_s(self) -> float:
        """The time of the links, which no parameter changes."""
        names, size = self.topology.workers, self.shape.hidden_bytes(1)
        if self.placement == "pipeline":
            hops_s = [hop_s(self.topology, a, b, size) for a, b in pairwise(names)]
            return sum(hops_s) + hop_s(self.topology, names[-1], names[0], TOKEN_BYTES)
        if self.placement == "tensor":
            logits = self.shape.logits_bytes(1, 1 / self.nodes)
            ends_s = told_s(self.topology, names, TOKEN_BYTES) + gathered_s(self.topology, names, logits)
            return ends_s + 2 * self.shape.layers * all_reduce_s(self.topology, names, size)
        return 0.0

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The terms with parameters: memory, overheads of layers, and those of hops or all-reduces."""
        shared = "mlx" if self.engine == "exo" else self.group  # exo computes with MLX
        memory = {f"memory {shared} {self.part}": -1.0}
        if self.device in WITHOUT_DOT_PRODUCT:
            memory["dot product"] = -1.0
        found = [Term(self._memory_s, memory)]
        if self.part != "cpu" and self.engine != "mlx":
            found.append(Term(self.shape.layers, {f"layer {self.engine}": 1.0}))
        if self.placement == "pipeline":
            hop = "llama.cpp" if self.engine == "llama.cpp" else "mlx"
            found.append(Term(self.nodes, {f"hop {hop}": 1.0}))
        if self.placement == "tensor":
            found += self._reduces
        return tuple(found)

    @property
    def _memory_s(self) -> float:
        """The time of reading the weights, in equal shares on all nodes, at the full bandwidth.

        Old versions of distributed-llama compute all logits on the first node.
        """
        divided = self.nodes if self.placement == "tensor" else 1
        devices = [self.topology.device(name) for name in self.topology.workers]
        paces = [pace(device, self.shape, 1, 1, CONTEXT) for device in devices]
        layers_s = self.shape.layers * sum(one.layer_s for one in paces) / len(paces)
        return layers_s / divided + paces[-1].head_s / (1 if self.is_old else divided)

    @property
    def _reduces(self) -> list[Term]:
        count = 2 * self.shape.layers
        found = [Term(count, {f"reduce {self.group}": 1.0})]
        if self.nodes > MOST_AT_ONCE:
            found.append(Term(count * (self.nodes - 1) * self.shape.width, {"incast": 1.0}))
        return found


def published() -> list[PublishedRow]:
    """Return all rows of published.csv, in the order of the file."""
    text = resources.files("simcluster.lm.plan").joinpath("published.csv").read_text(encoding="utf-8")
    return [_row(keys) for keys in csv.DictReader(text.splitlines())]


def _row(keys: Mapping[str, str]) -> PublishedRow:
    memory_Bps = tuple(1e9 * float(each) for each in keys["memory_GBps"].split("+"))
    rate, milliseconds = keys["tokens_per_s"], keys["ms_per_token"]
    return PublishedRow(
        keys["engine"], keys["version"], keys["model"], keys["format"],
        float(keys["weight_bytes"]), float(keys["expert_bytes"]) if keys["expert_bytes"] else None,
        keys["device"], keys["part"], memory_Bps, int(keys["nodes"]), keys["placement"], keys["link"],
        1 / float(rate) if rate else float(milliseconds) / 1e3, keys["source"], keys["where"],
    )  # fmt: skip
