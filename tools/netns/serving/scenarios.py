"""The networks, accelerators and loads for which predictions of serving are measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simcluster.lm.load.load_options import LoadOptions
from tools.netns.scenarios import Network

MODEL: Mapping[str, object] = {
    "num_hidden_layers": 8, "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
    "intermediate_size": 704, "vocab_size": 256, "max_position_embeddings": 1024,
}  # fmt: skip
"""A small model that loads at once.

The stream takes 1 kB per token, and up to 256 kB per prompt.
"""

ACCELERATORS: Mapping[str, tuple[float, float]] = {"n0": (5e9, 450e6), "n1": (4e9, 600e6), "n2": (6e9, 500e6)}
"""Node -> (FLOPs per second, bytes per second) of the accelerator that its pauses imitate."""


@dataclass(frozen=True)
class Placed:
    """A network with a pipeline: node -> number of its layers, in order."""

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
"""Name of a load -> its options.

Some loads keep requests apart; in others they queue and are batched.
"""
