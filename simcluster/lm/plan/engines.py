"""The engines that a plan can be for, with the terms in which their times differ.

The numbers of `transformers`, the engine of `simcluster serve`, are neutral: its times are those of
the topology alone, and the simulator agrees with them. They stay neutral until that engine is
measured. The other numbers are fitted to the rows of published.csv by `python -m
tools.published_rows`, and a test compares them with its output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lm.formats import FORMATS
from simcluster.lm.plan.shape import ATTENTION_OPERATORS, FEED_OPERATORS, ModelShape
from simcluster.spelling import nearest
from simcluster.topology import Device, Topology
from simcluster.topology.model.compute import CPU, kind_of

WITHOUT_DOT_PRODUCT: Final = ("raspberry-pi-4",)
"""Devices with a CPU that lacks an instruction for dot products of 8-bit integers."""

DOT_PRODUCT: Final = 0.621
"""The rate at which such a CPU reads weights, relative to other CPUs."""

MOST_AT_ONCE: Final = 4
"""In the published rows, no switch was slow at an all-reduce over at most this many nodes."""


@dataclass(frozen=True)
class EngineTerms:
    """The terms of one engine.

    - *formats*: the formats in which it holds weights. *kinds*: the placements that it has.
      *runs*: those that `simcluster serve` runs it with; () if it is only planned.
    - *memory*: part of a machine (cpu, mps or cuda) -> the share of that part's memory bandwidth
      that the engine reaches. An engine that is measured here uses no other parts. If *memory* is
      empty, times are those of the unchanged devices.
    - *layer_s*: overhead of a layer on an accelerator. *hop_s*: overhead of a hop of a pipeline.
      *reduce_s*: overhead of an all-reduce.
    - *incast_s*: additional time of an all-reduce over more than MOST_AT_ONCE nodes, per sender and
      unit of the model's width. A cheap switch drops messages that arrive at one port at once, so
      they are sent again.
    - *number_bytes*: the size of an activation or cache entry; None keeps that of the shape.
    """

    formats: tuple[str, ...]
    kinds: tuple[str, ...]
    memory: Mapping[str, float] = field(default_factory=dict)
    layer_s: float = 0.0
    hop_s: float = 0.0
    reduce_s: float = 0.0
    incast_s: float = 0.0
    number_bytes: float | None = None
    runs: tuple[str, ...] = ()

    def shaped(self, shape: ModelShape) -> ModelShape:
        """Return *shape* with the activations and cache entries of this engine."""
        return shape if self.number_bytes is None else replace(shape, number_bytes=self.number_bytes)

    def overhead_s(self, nodes: int, width: int) -> float:
        """Return the overhead of an all-reduce over *nodes*, in a model of *width*."""
        return self.reduce_s + (self.incast_s * (nodes - 1) * width if nodes > MOST_AT_ONCE else 0.0)

    def topology(self, topology: Topology) -> Topology:
        """Return *topology* with the devices as this engine uses them.

        Raise UsageError if the engine cannot use the part on which a node computes.
        """
        if not self.memory:
            return topology
        nodes, problems = {}, list[Problem]()
        alike = dict[int, Device]()
        for name, node in topology.nodes.items():
            nodes[name] = node
            if (device := node.device) is None:
                continue
            part = kind_of(device.computes_on)
            if part not in self.memory and CPU in self.memory:
                device, part = device.cpu or device, CPU
            if part not in self.memory:
                expected = f"{' or '.join(self.memory)}: the engine computes on nothing else"
                problems.append(Problem(f"nodes.{name}.compute", part, expected))
                continue
            if id(device) not in alike:  # nodes that share a Device share the changed one as well
                alike[id(device)] = self._used(device, part)
            nodes[name] = replace(node, device=alike[id(device)])
        raise_all(problems)
        return replace(topology, nodes=nodes)

    def _used(self, device: Device, part: str) -> Device:
        """Return *device* with the rates and overheads of this engine on its *part*."""
        share = self.memory[part]
        if part == CPU and device.name in WITHOUT_DOT_PRODUCT:
            share *= DOT_PRODUCT
        each_s = 0.0 if part == CPU else self.layer_s / (ATTENTION_OPERATORS + FEED_OPERATORS)
        bandwidth_Bps = share * device.memory_bandwidth_Bps
        return replace(device, memory_bandwidth_Bps=bandwidth_Bps, work_overhead_s=0.0, operator_overhead_s=each_s)


_QUANTISED: Final = ("bf16", "f16", "int8", "q4")
_CUT: Final = ("alone", "pipeline", "replicas", "pipelines")
_WHOLE: Final = ("alone", "replicas")
_ALL: Final = ("alone", "pipeline", "tensor", "replicas", "hybrid", "pipelines")

DEFAULT: Final = "transformers"
ENGINES: Final[Mapping[str, EngineTerms]] = {
    DEFAULT: EngineTerms(tuple(FORMATS), _ALL, runs=_ALL[:4]),
    "llama.cpp": EngineTerms(
        tuple(FORMATS),
        _CUT,
        {"cpu": 1.02, "mps": 0.9, "cuda": 1.06},
        layer_s=137e-6,
        hop_s=3.71e-3,
        number_bytes=2.0,
        runs=_WHOLE,
    ),
    "mlx": EngineTerms(_QUANTISED, _CUT, {"mps": 0.839}, hop_s=1.44e-3, number_bytes=2.0, runs=_WHOLE),
    "exo": EngineTerms(_QUANTISED, _CUT, {"mps": 0.839}, layer_s=387e-6, hop_s=1.44e-3, number_bytes=2.0),
    "distributed-llama": EngineTerms(
        ("f32", "q4"),
        ("alone", "tensor", "replicas"),
        {"cpu": 0.971},
        reduce_s=33.6e-6,
        incast_s=0.214e-6,
        number_bytes=34 / 32,
    ),
}  # fmt: skip
"""Name -> terms. DEFAULT is what `simcluster serve` runs unless another engine is chosen."""


def terms_of(name: str, weights: str | None = None, *, runs: bool = False) -> EngineTerms:
    """Return the terms of the engine *name*.

    Raise UsageError if the engine is unknown, if it cannot hold weights in the format *weights*, or
    if it shall run on nodes (*runs*) and only can be planned.
    """
    known = [other for other, terms in ENGINES.items() if terms.runs or not runs]
    if name not in known:
        hint = f"{', '.join(known)}; {name} is for `plan`" if name in ENGINES else nearest(name, known)
        raise UsageError("--engine", repr(name), hint)
    found = ENGINES[name]
    if weights is not None and weights not in found.formats:
        others = [other for other, terms in ENGINES.items() if weights in terms.formats]
        elsewhere = f"; --engine {' or '.join(others)} holds {weights}" if others else ""
        raise UsageError("--weights", repr(weights), f"{', '.join(found.formats)}, which {name} holds{elsewhere}")
    return found
