"""The clusters, algorithms and sizes for which the simulator is compared with a real network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKLOAD = Path(__file__).with_name("accelerator.py")

FAST, SLOW = "50 Mbps", "20 Mbps"
"""The rates of links, including headers.

They are low enough for two cores to handle all packets.
"""

ACCELERATORS_S = {"n0": 0.25, "n1": 0.25, "n2": 0.3, "n3": 0.37}
"""Seconds per gradient.

If asynchronous workers had equal paces, their initial offsets would persist.
"""

SLOW_ACCELERATOR_S = 0.9


@dataclass(frozen=True)
class Network:
    """A cluster: its topology without addresses, and the seconds that each node takes for a
    gradient.
    """

    name: str
    nodes: dict[str, float]
    links: tuple[tuple[str, str, str, str], ...]
    switches: tuple[str, ...] = ()

    def document(self, addresses: dict[str, str] | None = None) -> dict[str, Any]:
        """Return the content of a topology file.

        Before a calibration, its flops are placeholders.
        """
        found = addresses or {}
        nodes: dict[str, Any] = {name: {"flops": "1 GFLOP/s"} for name in self.nodes}
        for name in found.keys() & nodes.keys():
            nodes[name]["address"] = found[name]
        return {
            "name": self.name,
            "nodes": nodes | {name: {"kind": "switch"} for name in self.switches},
            "links": [
                {"between": [a, b], "bandwidth": bandwidth, "latency": latency}
                for a, b, bandwidth, latency in self.links
            ],
        }


def _star(name: str, last_link: str = FAST, last_node_s: float = ACCELERATORS_S["n3"]) -> Network:
    nodes = ACCELERATORS_S | {"n3": last_node_s}
    links = tuple((node, "sw", last_link if node == "n3" else FAST, "0 s") for node in nodes)
    return Network(name, nodes, links, ("sw",))


NETWORKS = (
    _star("star"),
    Network(
        "chain",
        {name: ACCELERATORS_S[name] for name in ("n0", "n1", "n2")},
        (("n0", "n1", FAST, "0 s"), ("n1", "n2", FAST, "3 ms")),
    ),
    _star("slow-link", last_link=SLOW),
    _star("slow-node", last_node_s=SLOW_ACCELERATOR_S),
)

ALGORITHMS = ("sync_ps", "edp", "all_reduce_dp")


@dataclass(frozen=True)
class Size:
    """The size of a model, and the number of steps to measure."""

    parameters: int
    steps: int

    @property
    def words(self) -> str:
        return f"{self.parameters * 4 / 1e6:g} MB"


SIZES = (Size(50_000, 7), Size(200_000, 6))


def experiment(network: Network, algorithm: str, size: Size) -> dict[str, Any]:
    """Return the experiment of one scenario. Runs replace its topology."""
    return {
        "name": f"{network.name}-{algorithm}-{size.parameters}",
        "topology": network.document(),
        "algorithm": algorithm,
        "workload": {"path": f"{WORKLOAD}:make_workload", "parameters": size.parameters},
        "stop": {"steps": size.steps},
    }
