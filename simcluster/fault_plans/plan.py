"""Faults planned from Python. Each run inside `with simcluster.faults() as plan:` validates and has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class FaultPlan:
    """A list of *faults*, as in an experiment file. Each method adds one.

    *at_s* is its start and *for_s* its duration, in seconds of the run; without *for_s* it never ends. In place of
    *at_s*, *at_step* is a step of its node, after which it begins. *towards* names the one end of a link that is
    affected; without it both directions are.
    """

    def __init__(self) -> None:
        self.faults: list[dict[str, Any]] = []

    def crash(self, node: str, *, at_s: float | None = None, at_step: int | None = None) -> None:
        """*node* dies."""
        self.add("crash", node=node, at_s=at_s, at_step=at_step)

    def restart(self, node: str, *, after_s: float, at_s: float | None = None, at_step: int | None = None) -> None:
        """*node* dies, and starts from the beginning *after_s* later."""
        self.add("restart", node=node, at_s=at_s, at_step=at_step, after_s=after_s)

    def join(self, node: str, *, at_s: float) -> None:
        """*node* is absent until *at_s*, and then starts from the beginning."""
        self.add("join", node=node, at_s=at_s)

    def leave(
        self, node: str, *, at_s: float | None = None, at_step: int | None = None, notice_s: float | None = None
    ) -> None:
        """*node* is asked to leave; it does at the end of its step, or is killed after *notice_s*."""
        self.add("leave", node=node, at_s=at_s, at_step=at_step, notice_s=notice_s)

    def hang(
        self, node: str, *, at_s: float | None = None, at_step: int | None = None, for_s: float | None = None
    ) -> None:
        """*node* does nothing, while its links stay up."""
        self.add("hang", node=node, at_s=at_s, at_step=at_step, for_s=for_s)

    def slow(
        self, node: str, *, factor: float, at_s: float | None = None, at_step: int | None = None,
        for_s: float | None = None,
    ) -> None:  # fmt: skip
        """*node*'s work takes *factor* times as long."""
        self.add("slow", node=node, factor=factor, at_s=at_s, at_step=at_step, for_s=for_s)

    def cut(self, link: str, *, at_s: float, for_s: float | None = None, towards: str | None = None) -> None:
        """No message passes *link*."""
        self.add("cut", link=link, towards=towards, at_s=at_s, for_s=for_s)

    def flap(
        self, link: str, *, at_s: float, for_s: float, period_s: float, down: float = 0.5, towards: str | None = None
    ) -> None:
        """*link* is cut for the share *down* of each period."""
        self.add("flap", link=link, towards=towards, at_s=at_s, for_s=for_s, period_s=period_s, down=down)

    def partition(self, *groups: Sequence[str], at_s: float, for_s: float | None = None) -> None:
        """Nodes of different *groups* cannot reach each other."""
        self.add("partition", groups=[list(group) for group in groups], at_s=at_s, for_s=for_s)

    def reset(self, *groups: Sequence[str], at_s: float) -> None:
        """Connections between nodes of different *groups* break, and are made again."""
        self.add("reset", groups=[list(group) for group in groups], at_s=at_s)

    def latency(
        self, link: str, *, add_s: float, at_s: float, for_s: float | None = None, towards: str | None = None
    ) -> None:
        """Every message over *link* takes *add_s* longer."""
        self.add("latency", link=link, towards=towards, add_s=add_s, at_s=at_s, for_s=for_s)

    def bandwidth(
        self, link: str, *, factor: float, at_s: float, for_s: float | None = None, towards: str | None = None
    ) -> None:
        """*link* has *factor*, below 1, of its bandwidth."""
        self.add("bandwidth", link=link, towards=towards, factor=factor, at_s=at_s, for_s=for_s)

    def loss(
        self, link: str, *, probability: float, at_s: float, for_s: float | None = None, towards: str | None = None
    ) -> None:
        """A share of *link*'s packets is dropped."""
        self.add("loss", link=link, towards=towards, probability=probability, at_s=at_s, for_s=for_s)

    def add(self, kind: str, **settings: Any) -> None:
        """Add a fault with the keys of a file; at_s=0.1 is `at: 0.1 s`, and None is absent."""
        # repr keeps every bit of a float.
        given = {
            name.removesuffix("_s"): f"{value!r} s" if name.endswith("_s") else value
            for name, value in settings.items()
            if value is not None
        }
        self.faults.append({"kind": kind, **given})


_plans: ContextVar[tuple[FaultPlan, ...]] = ContextVar("plans of faults that hold", default=())


@contextmanager
def faults() -> Iterator[FaultPlan]:
    """Yield a plan of faults for the runs made inside the block, in addition to those of their experiments."""
    plan = FaultPlan()
    token = _plans.set((*_plans.get(), plan))
    try:
        yield plan
    finally:
        _plans.reset(token)


def planned() -> list[dict[str, Any]]:
    """Return the faults of all enclosing blocks, the outermost first."""
    return [fault for plan in _plans.get() for fault in plan.faults]
