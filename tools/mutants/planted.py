"""A defect of fault handling that is planted into a copy of the library, for the swarm of tools/swarm to find."""

from __future__ import annotations

from dataclasses import dataclass

from tools.mutants.trial import Mutant


@dataclass(frozen=True)
class Planted:
    """*mutant* is the change. It shows only in runs of *algorithms*, if a fault of *kinds* happens, and only where the
    experiment has all that it *needs*: `slope` (equal gradients), `checkpoint`, `draws` (from global generators),
    `running mean`, `sizes` (by node), `parts` (a topology in them). Empty: in any. *was_there*: the library
    once had it.
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
    """A `Planted` for which `verify` is not asked."""
    mutant = Mutant(str(number), defect, file, old, new, "", "", more=more)
    return Planted(mutant, algorithms, kinds, needs, was_there)
