"""Which workers can every other worker reach? Pure, and linear in nodes and links in all but odd cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cut_off(workers: Sequence[str], links: Iterable[tuple[str, str]], gateways: frozenset[str]) -> list[str]:
    """The *workers* that cannot reach all others by way of *gateways*; of two parts, the smaller is cut off.

    A route ends at any node but goes only through gateways. So two workers reach each other if a link joins
    them or if both hang on, or belong to, one connected part of the gateways.
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
    # max takes the first of equals: the part of the lowest rank.
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
