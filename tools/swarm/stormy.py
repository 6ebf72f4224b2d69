"""A world of the swarm: random weather, with or without losses of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def stormy(env: Any, cluster: Any, *, mean_s: float, violent: bool = False) -> Any:
    """Do something after *mean_s* on average, and undo it later; a *violent* world crashes nodes, too."""
    rng = cluster.rng("stormy")

    def lasts(begin: Callable[[], object], end: Callable[[], object]) -> Any:
        begin()
        yield env.timeout(min(rng.exponential(mean_s), 1.0))  # below dead_s
        end()

    normals: dict[Any, float] = {node.name: 1.0 for node in cluster.nodes}
    for link in cluster.links:
        normals |= {(link.name, name): getattr(link, name) for name in ("bandwidth_Bps", "latency_s")}

    def sets(handle: Any, name: str, factor: float, more: float = 0.0) -> Any:
        normal = normals[handle.name if name == "speed" else (handle.name, name)]
        return lasts(lambda: setattr(handle, name, normal * factor + more), lambda: setattr(handle, name, normal))

    busy: set[object] = set()

    def once(key: object, process: Callable[[], Any]) -> Any:
        if key not in busy:
            busy.add(key)
            yield from process()
            busy.discard(key)

    def weather() -> Any:
        node = cluster.nodes[rng.integers(len(cluster.nodes))]
        acts = [
            lambda: once((node.name, "speed"), lambda: sets(node, "speed", rng.uniform(0.1, 2.0))),
            lambda: once((node.name, "stop"), lambda: lasts(node.freeze, node.thaw)),
        ]
        if cluster.links:
            link = cluster.links[rng.integers(len(cluster.links))]
            acts += [
                lambda: once((link.name, "rate"), lambda: sets(link, "bandwidth_Bps", rng.uniform(0.05, 2.0))),
                lambda: once((link.name, "latency"), lambda: sets(link, "latency_s", 1.0, rng.exponential(1e-3))),
                lambda: once((link.name, "cut"), lambda: lasts(link.cut, link.heal)),
            ]
        if violent and node.alive:
            acts += [
                lambda: once((node.name, "down"), lambda: lasts(lambda: node.crash(returns=True), node.restart)),
                lambda: lasts(node.crash, lambda: None),
            ]
        return acts[rng.integers(len(acts))]()

    while True:
        yield env.timeout(rng.exponential(mean_s))
        env.process(weather())
