"""The types of an algorithm's setting `overlay`.

The setting is validated with the experiment, before anything is written. Outside of an experiment,
only names and types are checked, and the algorithm checks the rest when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from simcluster.errors import UsageError
from simcluster.overlays.overlay import Overlay
from simcluster.overlays.setting import KINDS, Setting, overlay_of, resolved
from simcluster.overlays.shapes import Misfit


@dataclass(frozen=True)
class World:
    """The facts of an experiment that the validation of a setting needs.

    Pydantic's validation context has them under "world".
    """

    folder: Path
    names: tuple[str, ...]
    seed: int


def overlay_for(setting: Any, size: int, seed: int, refuse: Callable[[Overlay], str] = lambda overlay: "") -> Overlay:
    """Return the overlay of *setting* for *size* ranks.

    Raise UsageError if *setting* is invalid or does not fit, or if *refuse* returns an objection to
    the overlay.
    """
    overlay = overlay_of(setting, size, seed)
    if against := refuse(overlay):
        raise UsageError(f"overlay {setting!r}: expected {against}")
    return overlay


def unbalanced(overlay: Overlay) -> str:
    """Return an objection if *overlay* has no doubly stochastic weights, otherwise ""."""
    return "" if overlay.balanced else "undirected edges, or the same number in and out everywhere; sgp takes others"


def moving(overlay: Overlay) -> str:
    """Return an objection if *overlay* changes between rounds, otherwise ""."""
    return "a graph that does not change" if overlay.changing else ""


def unfixed(overlay: Overlay) -> str:
    """Return an objection if *overlay* changes or has no doubly stochastic weights, otherwise
    "".
    """
    return moving(overlay) or unbalanced(overlay)


def _checked(refuse: Callable[[Overlay], str]) -> Callable[[Setting, ValidationInfo], Setting]:
    def check(setting: Setting, info: ValidationInfo) -> Setting:
        context: Mapping[str, Any] = info.context or {}
        world: World | None = context.get("world")
        try:
            if world is None:
                return resolved(setting)
            known = resolved(setting, world.folder, world.names)
            if against := refuse(overlay_of(known, len(world.names), world.seed)):
                raise Misfit(against)
        except (Misfit, UsageError) as wrong:
            reason = wrong.problems[0].expected if isinstance(wrong, UsageError) else str(wrong)
            raise PydanticCustomError("overlay", "{reason}", {"reason": reason}) from None
        return known

    return check


_KIND = {"properties": {"kind": {"enum": list(KINDS)}}, "required": ["kind"]}
_NAMES = [name for name in KINDS if name not in ("cycle", "file")]
_SCHEMA = WithJsonSchema({"anyOf": [{"enum": _NAMES}, {"type": "object", **_KIND}]})

AnyOverlay = Annotated[str | dict[str, Any], AfterValidator(_checked(lambda overlay: "")), _SCHEMA]
"""Any connected overlay."""
BalancedOverlay = Annotated[str | dict[str, Any], AfterValidator(_checked(unbalanced)), _SCHEMA]
"""An overlay with doubly stochastic weights."""
StaticOverlay = Annotated[str | dict[str, Any], AfterValidator(_checked(moving)), _SCHEMA]
"""An overlay that is the same in every round."""
FixedOverlay = Annotated[str | dict[str, Any], AfterValidator(_checked(unfixed)), _SCHEMA]
"""An overlay that is the same in every round and has doubly stochastic weights."""
