"""One case of the swarm: an experiment, the options of its backend, and the file that repeats both."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

SLOPE = Path(__file__).with_name("slope.py")
"""The workload of the swarm's own."""


@dataclass(frozen=True)
class Case:
    """The draw of one seed: the *document* of an experiment, and the *options* of the simulator."""

    seed: int
    document: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def algorithm(self) -> str:
        return str(self.document["algorithm"]["name"])

    @property
    def settings(self) -> dict[str, Any]:
        return {key: value for key, value in self.document["algorithm"].items() if key != "name"}

    @property
    def faults(self) -> list[dict[str, Any]]:
        return list(self.document.get("faults", []))

    @property
    def workers(self) -> list[str]:
        nodes = self.document["topology"]["nodes"]
        return [name for name, keys in nodes.items() if keys.get("kind", "worker") == "worker"]

    @property
    def is_sloped(self) -> bool:
        """Whether every gradient is the same."""
        return "path" in self.document["workload"]

    @property
    def undisturbed(self) -> Case:
        """The same without faults."""
        return self.with_faults([])

    def with_faults(self, faults: list[dict[str, Any]]) -> Case:
        document = {key: value for key, value in self.document.items() if key != "faults"}
        return replace(self, document=document | ({"faults": faults} if faults else {}))

    def with_document(self, **changed: Any) -> Case:
        return replace(self, document={**copy.deepcopy(self.document), **changed})

    def command(self, file: str) -> str:
        """The line that runs it from *file*."""
        names = {"max_restarts": "--max-restarts"}
        words = [
            f"{names[key]} {value}" if key in names else f"--option {key}={value}"
            for key, value in self.options.items()
        ]
        return " ".join(["simcluster run", file, *words])

    def write(self, path: Path, about: str = "") -> None:
        """Writes the experiment, below a comment that says how to run it, and why it is kept."""
        document = copy.deepcopy(self.document)
        if self.is_sloped:
            place = os.path.relpath(SLOPE, path.resolve().parent)
            document["workload"]["path"] = f"{place}:slope"
        lines = [f"# {line}" for line in [*about.splitlines(), self.command(path.name)] if line]
        lines.append(f"# options: {yaml.safe_dump(self.options, default_flow_style=True).strip()}")
        body = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*lines, body]), encoding="utf-8")


def read_case(path: Path) -> Case:
    """The case that was written to *path*."""
    text = path.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    options = next((line.partition("options:")[2] for line in text.splitlines() if line.startswith("# options:")), "{}")
    if "path" in document["workload"]:
        document["workload"]["path"] = f"{SLOPE}:slope"
    return Case(int(document.get("seed", 0)), document, yaml.safe_load(options))
