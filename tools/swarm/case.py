"""One case of the swarm: an experiment and the options of the simulator, stored in a file if
needed.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SLOPE, NORMED, DRAWING = (f"{HERE}/{name}" for name in ("slope.py:slope", "models.py:normed", "models.py:drawing"))
"""Workloads that only the swarm uses."""
NOISY = f"{HERE}/noisy.py:noisy"
"""An algorithm that only the swarm uses. It makes the same promises as KIN."""
KIN = "all_reduce_dp"
OWN = (("workload", "path"), ("algorithm", "path"))
"""The keys (block, key) that may name one of the files above."""


@dataclass(frozen=True)
class Case:
    """The case of one seed: the *document* of an experiment, and the *options* of the simulator."""

    seed: int
    document: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def algorithm(self) -> str:
        """The case's algorithm, or the shipped algorithm that makes the same promises."""
        return str(self.document["algorithm"].get("name", KIN))

    @property
    def settings(self) -> dict[str, Any]:
        return {key: value for key, value in self.document["algorithm"].items() if key not in ("name", "path")}

    @property
    def faults(self) -> list[dict[str, Any]]:
        return list(self.document.get("faults", []))

    @property
    def workers(self) -> list[str]:
        nodes = self.document["topology"]["nodes"]
        return [name for name, keys in nodes.items() if keys.get("kind", "worker") == "worker"]

    @property
    def is_sloped(self) -> bool:
        """Whether all gradients are equal."""
        return self._has(SLOPE)

    @property
    def is_normed(self) -> bool:
        """Whether the model has a running mean."""
        return self._has(NORMED)

    @property
    def is_noisy(self) -> bool:
        """Whether the algorithm draws from global generators."""
        return bool(self.document["algorithm"].get("path") == NOISY)

    @property
    def batch_sizes(self) -> list[int]:
        """The distinct batch sizes in ascending order, or none if they depend on the speed of
        devices.
        """
        size = self.document["workload"].get("batch_size", 2 if self.is_sloped else 16)
        if not isinstance(size, dict):
            return [int(size)]
        return [] if "by" in size else sorted(set(size.values()))

    @property
    def undisturbed(self) -> Case:
        """The same case without faults."""
        return self.with_faults([])

    def with_faults(self, faults: list[dict[str, Any]]) -> Case:
        document = {key: value for key, value in self.document.items() if key != "faults"}
        return replace(self, document=document | ({"faults": faults} if faults else {}))

    def with_document(self, **changed: Any) -> Case:
        return replace(self, document={**copy.deepcopy(self.document), **changed})

    def _has(self, workload: str) -> bool:
        return bool(self.document["workload"].get("path") == workload)

    def command(self, file: str) -> str:
        """Return the command line that runs this case from *file*."""
        names = {"max_restarts": "--max-restarts"}
        words = [
            f"{names[key]} {value}" if key in names else f"--option {key}={value}"
            for key, value in self.options.items()
        ]
        return " ".join(["simcluster run", file, *words])

    def write(self, path: Path, about: str = "") -> None:
        """Write the experiment to *path*.

        A comment at its top has the lines of *about*, the command that runs the case, and its
        options.
        """
        document = copy.deepcopy(self.document)
        for block, key in OWN:
            if ":" in document[block].get(key, ""):
                document[block][key] = os.path.relpath(document[block][key], path.resolve().parent)
        lines = [f"# {line}" for line in [*about.splitlines(), self.command(path.name)] if line]
        lines.append(f"# options: {yaml.safe_dump(self.options, default_flow_style=True).strip()}")
        body = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*lines, body]), encoding="utf-8")


def read_case(path: Path) -> Case:
    """Return the case that was written to *path*."""
    text = path.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    options = next((line.partition("options:")[2] for line in text.splitlines() if line.startswith("# options:")), "{}")
    for block, key in OWN:
        if ":" in document[block].get(key, ""):
            document[block][key] = f"{HERE}/{Path(document[block][key]).name}"
    return Case(int(document.get("seed", 0)), document, yaml.safe_load(options))
