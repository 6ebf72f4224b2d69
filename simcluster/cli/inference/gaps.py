"""The gaps of a topology for a forecast of a language model, as commands print them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcluster.topology import Topology


def print_gaps(topology: Topology, names: Sequence[str]) -> None:
    """Print to standard error what the devices of *names* lack, a line each."""
    from simcluster.inference.plan.table import gaps

    for gap in gaps(topology, names):
        print(f"times: {gap}", file=sys.stderr)
