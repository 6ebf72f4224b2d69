"""A defect of fault handling, planted into a copy of the library so that tools/swarm must
find it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.mutants.trial import Mutant


@dataclass(frozen=True)
class Planted:
    """A planted defect. *mutant* is the change of the source.

    The defect shows only in runs of *algorithms* with faults of *kinds*, and only if the experiment
    has everything that the defect *needs*: `slope` (equal gradients), `checkpoint`, `draws` (from
    global generators), `running mean`, `sizes` (batch sizes by node), `parts` (a disconnected
    topology). An empty tuple sets no condition. *was_there* tells whether the library once had the
    defect.
    """

    mutant: Mutant
    algorithms: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    was_there: bool = False


def plant(
    number: int,
    defect: str,
    file: str,
    old: str,
    new: str,
    *,
    more: tuple[str, str] | None = None,
    algorithms: tuple[str, ...] = (),
    kinds: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    was_there: bool = False,
) -> Planted:
    """Return a `Planted` defect. The swarm must find it; `verify` need not."""
    mutant = Mutant(str(number), defect, file, old, new, "", "", more=more)
    return Planted(mutant, algorithms, kinds, needs, was_there)
