"""Find the workers that not all others can reach. Pure; linear in nodes and links except in rare cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cut_off(workers: Sequence[str], links: Iterable[tuple[str, str]], gateways: frozenset[str]) -> list[str]:
    """Return the *workers* that cannot reach all others through *gateways*; of two parts, the smaller is cut off.

    A route may end at any node but pass only through gateways. So two workers reach each other if a link joins them, or
    if both are attached to, or belong to, one connected component of the gateways.
    """
    parts = _Parts()
    beside: dict[str, list[str]] = {}
    for a, b in links:
        beside.setdefault(a, []).append(b)
        beside.setdefault(b, []).append(a)
        if a in gateways and b in gateways:
            parts.join(a, b)
    hangs_on = {
        worker: {parts.root(node) for node in (worker, *beside.get(worker, ())) if node in gateways}
        for worker in workers
    }
    sizes: dict[str, int] = {}
    for worker in workers:
        for root in sorted(hangs_on[worker]):
            sizes[root] = sizes.get(root, 0) + 1
    # max returns the first of equals: the component with the lowest rank.
    main = max(sizes, key=sizes.__getitem__) if sizes else None
    aside = [worker for worker in workers if main not in hangs_on[worker]]
    return [
        worker
        for worker in aside
        if not all(
            other == worker or other in beside.get(worker, ()) or hangs_on[worker] & hangs_on[other]
            for other in workers
        )
    ]


class _Parts:
    """Union-find with path halving."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def root(self, node: str) -> str:
        while (above := self.parent.get(node, node)) != node:
            self.parent[node] = self.parent.get(above, above)
            node = self.parent[node]
        return node

    def join(self, a: str, b: str) -> None:
        self.parent[self.root(a)] = self.root(b)
