"""Notes on predicted times of a language model: settings that devices lack, and the interval."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcluster.lm.plan.intervals import RateInterval
    from simcluster.lm.serving.setup import PlacementLayout
    from simcluster.topology import Topology


def print_gaps(topology: Topology, names: Sequence[str], backend: str) -> None:
    """Print the settings that devices of *names* lack, if *backend* is the simulator.

    Without these settings, simulated times are too short.
    """
    from simcluster.lm.plan.table import gaps

    for line in gaps(topology, names) if backend == "sim" else ():
        print(f"times: {line}", file=sys.stderr)


def print_format(topology: Topology, precision: str, backend: str) -> None:
    """Print in which format the weights are, and what was measured of formats."""
    from simcluster.lm.formats import DEFAULT
    from simcluster.lm.measured_formats import measured_note

    if precision != DEFAULT:
        print(f"{'times: ' * (backend == 'sim')}{measured_note(topology, precision)}", file=sys.stderr)


def interval_of(layout: PlacementLayout, requests: int, engine: str) -> RateInterval:
    """Return the interval of simulated rates of *requests* at once with *layout*."""
    from simcluster.lm.plan.engines import ENGINES
    from simcluster.lm.plan.intervals import rate_interval

    nodes = 1 if layout.kind == "replicas" else len(layout.ranks)
    return rate_interval(layout.kind, nodes, requests, ENGINES[engine])


def print_interval(layout: PlacementLayout, requests: int, engine: str) -> None:
    """Print the interval of simulated rates, and its source, to standard error."""
    from simcluster.lm.plan.engines import ENGINES
    from simcluster.lm.plan.intervals import source_of

    interval = interval_of(layout, requests, engine)
    source = source_of([(layout.kind, interval)], requests, ENGINES[engine])
    print(f"times: real rates are {interval.low:g} to {interval.high:g} times these; {source}", file=sys.stderr)
