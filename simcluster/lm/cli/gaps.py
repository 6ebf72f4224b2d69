"""The gaps of a topology for a forecast of a language model, as commands print them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcluster.topology import Topology


def print_gaps(topology: Topology, names: Sequence[str], backend: str) -> None:
    """Print to standard error what the devices of *names* compute on in place of what they ask for and, in the
    simulator, the numbers that they lack; a line each.
    """
    from simcluster.lm.plan.table import gaps
    from simcluster.lm.processor import told

    for line in gaps(topology, names) if backend == "sim" else told(topology, names):
        print(f"times: {line}", file=sys.stderr)
