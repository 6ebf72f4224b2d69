"""Pictures of shipped and generated topologies, drawn like those of `simcluster topology draw`."""

from __future__ import annotations

from typing import Any

from simcluster.documents.shipped import shipped_names
from simcluster.topology import Topology, load
from simcluster.topology.draw.draw import draw_svg

GENERATED: dict[str, dict[str, Any]] = {
    "star": {"generator": "star", "workers": 6},
    "ring": {"generator": "ring", "workers": 6},
    "chain": {"generator": "chain", "workers": 4},
    "complete": {"generator": "complete", "workers": 5},
    "torus": {"generator": "torus", "rows": 3, "columns": 3},
}


def names() -> list[str]:
    """Return the names of the shipped topologies, then those of the generated ones."""
    return [*shipped_names("topologies"), *GENERATED]


def draw(name: str) -> str:
    """Return the picture of the topology *name*."""
    return with_ground(draw_svg(topology(name)))


def topology(name: str) -> Topology:
    return load(GENERATED.get(name, name))


def with_ground(drawn: str) -> str:
    """Return the text of an SVG file: the topology *drawn*, on a background."""
    ground = '<rect width="100%" height="100%" rx="8" fill="var(--page)"/>'
    return drawn.replace("</style>", f"</style>{ground}", 1) + "\n"
