"""Measurements and predictions of loads on one network, after its calibration.

`simcluster calibrate` measures the links. Requests to each node alone yield its device.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from simcluster.lm.headers.read import shape_of
from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.trace import COLUMNS
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.serving.bench import BenchTarget, bench_cluster
from simcluster.topology import load
from tools.netns.hosts import Hosts
from tools.netns.serving.scenarios import ACCELERATORS, LOADS, Placed
from tools.netns.trial import PACED, launch

PROBES = (32, 224)
OUTPUT = 16
"""Prompt lengths for calibrating a device, and the length of the answers, in tokens."""

TURNS = 4
APART_S = 3.0
"""How often a node answers each prompt, and the seconds between two requests."""


@dataclass(frozen=True)
class Times:
    """The median latencies of a load, in seconds."""

    ttft_s: float
    tpot_s: float


@dataclass(frozen=True)
class Bench:
    """A running network. *folder* has its files, and *model* is the model's folder."""

    placed: Placed
    hosts: Hosts
    folder: Path
    model: Path
    key: Path

    @property
    def shape(self) -> ModelShape:
        return shape_of(str(self.model / "config.json"))

    def calibrated(self) -> Path:
        """Return the topology file with the measured links and devices.

        Each is measured only once.
        """
        links, whole = (self.folder / f"{self.placed.network.name}-{kind}.yaml" for kind in ("links", "measured"))
        if not links.is_file():
            words = ("calibrate", str(self._topology()), "--out", str(links), "--workload", "none")
            launch(self.hosts, self._paces(), self.key, *words)
        document = yaml.safe_load(links.read_text())
        for name in self.placed.layers:
            document["nodes"][name] |= self._device(name)
        whole.write_text(yaml.safe_dump(document, sort_keys=False))
        return whole

    def predict(self, words: str) -> Times:
        """Simulate the load called *words* on the calibrated topology. Return its times."""
        served = BenchTarget(str(self.model / "config.json"), placement=str(self._pipeline()))
        return times_of(bench_cluster(served, load(self.calibrated()), LOADS[words].offered()).answers)

    def measure(self, words: str, repeat: int) -> Times:
        """Return the times of the load called *words* on the network.

        Measure them unless they are stored.
        """
        options = LOADS[words]
        out = self.folder / f"{self.placed.network.name}, {words}, {repeat}.json"
        if not out.is_file():
            lengths = ["--prompt-tokens", options.prompt_tokens]
            lengths += ["--output-tokens", options.output_tokens]
            numbers = ("--rate", str(options.rate), "--requests", str(options.requests), *lengths)
            out.write_text(self._serve(self._pipeline(), *numbers))
        found = json.loads(out.read_text())
        assert found["failed"] == 0, found["errors"]
        return Times(found["ttft_s"]["median"], found["tpot_s"]["median"])

    def _device(self, name: str) -> dict[str, str]:
        """Return the keys of a node's device, fitted to the median times of its answers."""
        trace = self.folder / "probes.csv"
        out = self.folder / f"{self.placed.network.name}-{name}.csv"
        probes = [PROBES[turn % 2] for turn in range(2 * TURNS)]
        rows = [(turn * APART_S, "m", prompt, OUTPUT, prompt + OUTPUT, "") for turn, prompt in enumerate(probes)]
        trace.write_text("\n".join(",".join(map(str, row)) for row in [COLUMNS, *rows]))
        alone = self._write(f"alone-{name}", {"kind": "alone", "nodes": [name]})
        if not out.is_file():
            self._serve(alone, "--trace", str(trace), "--out", str(out))
        found = list(csv.DictReader(out.read_text().splitlines()))
        short_s, long_s = (
            median(float(row["TTFT"]) for row in found if int(row["Request tokens"]) == prompt) for prompt in PROBES
        )
        token_s = median(float(row["TPOT"]) for row in found if int(row["Request tokens"]) == PROBES[0])
        flops_per_s, bytes_per_s, overhead_s = fitted(self.shape, short_s, long_s, token_s)
        return {
            "flops": f"{flops_per_s} FLOP/s",
            "memory_bandwidth": f"{bytes_per_s} B/s",
            "work_overhead": f"{overhead_s} s",
        }

    def _serve(self, placement: Path, *words: str) -> str:
        options = ("--backend", "sockets", "--model", str(self.model), "--placement", str(placement), "--json")
        command = ("bench", "serving", str(self._topology()), *options, *words)
        return launch(self.hosts, self._paces(), self.key, *command, node=PACED)

    def _paces(self) -> dict[str, str]:
        return {name: ",".join(map(str, ACCELERATORS[name])) for name in self.placed.layers}

    def _topology(self) -> Path:
        network = self.placed.network
        return self._write(network.name, network.document(dict(self.hosts.addresses)))

    def _pipeline(self) -> Path:
        name = f"{self.placed.network.name}-pipeline"
        return self._write(name, {"kind": "pipeline", "nodes": dict(self.placed.layers)})

    def _write(self, name: str, content: dict[str, Any]) -> Path:
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return file


def fitted(shape: ModelShape, short_s: float, long_s: float, token_s: float) -> tuple[float, float, float]:
    """Return (FLOPs per second, bytes per second, overhead in seconds) that explain the times of a
    node.

    *short_s* and *long_s* are its TTFTs for prompts of PROBES tokens, *token_s* is its TPOT. The
    time of a prompt consists of FLOPs and overheads, so two lengths determine both. The time of a
    token consists of bytes and overheads. A node alone has two pieces of work, layers and logits,
    each with an overhead.
    """
    short, longer = (shape.layers * shape.layer_cost(1, prompt, 0).flops for prompt in PROBES)
    flops_per_s = (longer - short) / (long_s - short_s)
    head_bytes = shape.head_cost(1).memory_bytes
    read = shape.layers * shape.layer_cost(1, 1, PROBES[0] + OUTPUT // 2).memory_bytes + head_bytes
    # The logits of a prompt are bound by memory, too: short_s = flops + head / B + 2 w, and token_s = read / B + 2 w.
    bytes_per_s = (read - head_bytes) / (token_s - short_s + short / flops_per_s)
    return flops_per_s, bytes_per_s, max(0.0, (token_s - read / bytes_per_s) / 2)


def times_of(answers: Sequence[AnsweredRequest]) -> Times:
    """Return the medians of *answers*. None of them may have failed."""
    assert not any(one.error for one in answers)
    return Times(median(one.ttft_s for one in answers), median(one.tpot_s for one in answers if one.tpot_s is not None))
