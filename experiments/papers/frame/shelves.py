"""SmolCluster's machines on three networks, and its two workloads."""

from __future__ import annotations

from typing import Any

MACHINES = {
    "mini1": "mac-mini-m4",
    "mini2": "mac-mini-m4",
    "mini3": "mac-mini-m4",
    "pi5": "raspberry-pi-5",
    "pi4": "raspberry-pi-4",
}


def around(link: dict[str, Any]) -> dict[str, Any]:
    """Return the topology of the five machines around a switch, each on a *link*."""
    nodes: dict[str, Any] = {name: {"device": device} for name, device in MACHINES.items()}
    links = [{"between": [name, "sw"], **link} for name in nodes]
    return {"name": "five-on-a-switch", "nodes": nodes | {"sw": {"kind": "switch"}}, "links": links}


SHELVES: dict[str, Any] = {
    "its own shelf": "smolcluster",
    "gigabit": around({"type": "ethernet-1g"}),
    "Wi-Fi": around({"type": "wifi-6", "medium": "air"}),
}

GPT: dict[str, Any] = {
    "name": "gpt",
    "layers": 6,
    "width": 256,
    "heads": 4,
    "feed_forward": 1024,
    "context": 128,
    "vocabulary": 50257,
    "batch_size": 32,
    "learning_rate": 6e-4,
}
"""SmolCluster's GPT, as its gpt_config.yaml has it."""

DIGITS: dict[str, Any] = {
    "name": "mnist_mlp",
    "hidden": 128,
    "batch_size": 32,
    "learning_rate": 0.001,
    "optimizer": "adamw",
    "clip_norm": 1.0,
}
"""SmolCluster's network for digits, as its nn_config.yaml has it, on the digits of the package."""
