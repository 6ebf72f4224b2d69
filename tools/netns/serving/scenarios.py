"""Which networks, accelerators and loads serving is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simcluster.lm.load.asked import LoadOptions
from simcluster.lm.models.architecture import Architecture
from tools.netns.scenarios import Network

MODEL = Architecture(8, 256, 8, 4, 32, 704, 256, 1024, gated=True, tied=False, rope_base=1e4)
"""Small, so that hosts load it at once; a token's stream is 1 kB, a prompt's 256."""

ACCELERATORS: Mapping[str, tuple[float, float]] = {"n0": (5e9, 450e6), "n1": (4e9, 600e6), "n2": (6e9, 500e6)}
"""Node -> FLOPs and bytes per second of its pauses."""


@dataclass(frozen=True)
class Placed:
    """A network, and the layers of each node of its pipeline, in order."""

    network: Network
    layers: Mapping[str, int]


def _network(name: str, nodes: str, *links: tuple[str, str, str, str]) -> Network:
    return Network(name, dict.fromkeys(nodes.split(), 0.0), links)


NETWORKS = (
    Placed(_network("pair", "n0 n1", ("n0", "n1", "20 Mbps", "0 s")), {"n0": 4, "n1": 4}),
    Placed(
        _network("chain", "n0 n1 n2", ("n0", "n1", "20 Mbps", "0 s"), ("n1", "n2", "20 Mbps", "3 ms")),
        {"n0": 2, "n1": 3, "n2": 3},
    ),
)

LOADS = {
    "one by one": LoadOptions(0.5, 8, prompt_tokens="32", output_tokens="16"),
    "one by one, long prompts": LoadOptions(0.5, 8, prompt_tokens="224", output_tokens="16"),
    "busy": LoadOptions(3.0, 60, prompt_tokens="32", output_tokens="16"),
    "busy, long prompts": LoadOptions(1.5, 40, prompt_tokens="uniform:32:224", output_tokens="uniform:8:24"),
}
"""Words for a load -> the load. Its requests are far apart, or queue and share batches."""
