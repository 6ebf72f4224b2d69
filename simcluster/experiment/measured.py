"""Checks whether the work that devices were measured with is a run's work, or is only spelt like it."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import TYPE_CHECKING

from simcluster.workloads import WORKLOADS

if TYPE_CHECKING:
    from simcluster.experiment.read import Experiment

ALIKE = 0.75

log = logging.getLogger("simcluster.run")


def misspelt(plan: Experiment) -> list[str]:
    """What each profile says of a workload that is called nearly as that of *plan* and is none of ours, in words.

    No more than a warning: somebody may have a workload of that name.
    """
    name, found = plan.workload.name, []
    for node, of_node in plan.topology.nodes.items():
        profile = of_node.device.profile if of_node.device is not None else None
        for kind, _ in profile.kinds if profile is not None else ():
            measured, _, what = kind.rpartition("/")
            if measured != name and measured not in WORKLOADS and get_close_matches(measured, [name], cutoff=ALIKE):
                found.append(f"nodes.{node}.profile.{kind} is not used: did you mean {f'{name}/{what}'!r}?")
    return found


def warn_of_misspelt(plan: Experiment) -> None:
    """To the log, all of them."""
    for words in misspelt(plan):
        log.warning("%s", words)
