"""Faults planned from Python.

Each run inside `with simcluster.faults() as plan:` checks the plan and then suffers its faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class FaultPlan:
    """A list of *faults* as in an experiment file. Each method adds one fault.

    *at_s* is the start of a fault and *for_s* its duration, in seconds of the run; without *for_s*
    the fault never ends. If *at_step* is given instead of *at_s*, the fault begins at the end of
    that step of its node. *towards* is an end of the link, and only messages towards that end are
    affected; without *towards*, both directions are.
    """

    def __init__(self) -> None:
        self.faults: list[dict[str, Any]] = []

    def crash(self, node: str, *, at_s: float | None = None, at_step: int | None = None) -> None:
        """Make *node* die."""
        self.add("crash", node=node, at_s=at_s, at_step=at_step)

    def restart(self, node: str, *, after_s: float, at_s: float | None = None, at_step: int | None = None) -> None:
        """Make *node* die, and start it from the beginning *after_s* later."""
        self.add("restart", node=node, at_s=at_s, at_step=at_step, after_s=after_s)

    def join(self, node: str, *, at_s: float) -> None:
        """Keep *node* absent until *at_s*, and then start it from the beginning."""
        self.add("join", node=node, at_s=at_s)

    def leave(
        self, node: str, *, at_s: float | None = None, at_step: int | None = None, notice_s: float | None = None
    ) -> None:
        """Ask *node* to leave at the end of its step; kill it if it has not left after
        *notice_s*.
        """
        self.add("leave", node=node, at_s=at_s, at_step=at_step, notice_s=notice_s)

    def hang(
        self, node: str, *, at_s: float | None = None, at_step: int | None = None, for_s: float | None = None
    ) -> None:
        """Make *node* do nothing, while its links stay up."""
        self.add("hang", node=node, at_s=at_s, at_step=at_step, for_s=for_s)

    def slow(
        self, node: str, *, factor: float, at_s: float | None = None, at_step: int | None = None,
        for_s: float | None = None,
    ) -> None:  # fmt: skip
        """Make *node*'s work take *factor* times as long."""
        self.add("slow", node=node, factor=factor, at_s=at_s, at_step=at_step, for_s=for_s)

    def cut(self, link: str, *, at_s: float, for_s: float | None = None, towards: str | None = None) -> None:
        """Stop all messages over *link*."""
        self.add("cut", link=link, towards=towards, at_s=at_s, for_s=for_s)

    def flap(
        self, link: str, *, at_s: float, for_s: float, period_s: float, down: float = 0.5, towards: str | None = None
    ) -> None:
        """Cut *link* for a fraction *down* of each period of *period_s*."""
        self.add("flap", link=link, towards=towards, at_s=at_s, for_s=for_s, period_s=period_s, down=down)

    def partition(self, *groups: Sequence[str], at_s: float, for_s: float | None = None) -> None:
        """Separate *groups*: nodes of different groups cannot reach each other."""
        self.add("partition", groups=[list(group) for group in groups], at_s=at_s, for_s=for_s)

    def reset(self, *groups: Sequence[str], at_s: float) -> None:
        """Break the connections between nodes of different *groups*, which then connect again."""
        self.add("reset", groups=[list(group) for group in groups], at_s=at_s)

    def latency(
        self, link: str, *, add_s: float, at_s: float, for_s: float | None = None, towards: str | None = None
    ) -> None:
        """Make every message over *link* take *add_s* longer."""
        self.add("latency", link=link, towards=towards, add_s=add_s, at_s=at_s, for_s=for_s)

    def bandwidth(
        self, link: str, *, factor: float, at_s: float, for_s: float | None = None, towards: str | None = None
    ) -> None:
        """Multiply the bandwidth of *link* by *factor*, which is below 1."""
        self.add("bandwidth", link=link, towards=towards, factor=factor, at_s=at_s, for_s=for_s)

    def loss(
        self, link: str, *, probability: float, at_s: float, for_s: float | None = None, towards: str | None = None
    ) -> None:
        """Drop packets on *link* with *probability*."""
        self.add("loss", link=link, towards=towards, probability=probability, at_s=at_s, for_s=for_s)

    def add(self, kind: str, **settings: Any) -> None:
        """Add a fault of *kind*, with the *settings* as keys of an experiment file.

        For example, at_s=0.1 becomes `at: 0.1 s`. A setting of None is left out.
        """
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
    """Yield a plan of faults for the runs inside the block, in addition to the faults of their
    experiments.
    """
    plan = FaultPlan()
    token = _plans.set((*_plans.get(), plan))
    try:
        yield plan
    finally:
        _plans.reset(token)


def planned() -> list[dict[str, Any]]:
    """Return the faults of all enclosing blocks, the outermost first."""
    return [fault for plan in _plans.get() for fault in plan.faults]
