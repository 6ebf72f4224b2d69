"""A number that a timing-only run does not know: it may be computed with and sent, but nothing may depend on it."""

from __future__ import annotations

from typing import Any, NoReturn


class Undecidable(TypeError):
    """Somebody compared, or made whole, a number that is not known."""


class UnknownNumber(float):
    """NaN, as long in a message as any float. What arithmetic makes of it is unknown, too; to order it, or to make it
    whole, raises Undecidable.

    NaN alone would not do: `if loss < best` is quietly false for it, and the run would not be the one to foretell.
    """

    __slots__ = ()

    def __new__(cls) -> UnknownNumber:
        return super().__new__(cls, "nan")

    def __repr__(self) -> str:
        return "unknown"

    def _unknown(self, *_: Any) -> UnknownNumber:
        return self

    def _decide(self, *_: Any) -> NoReturn:
        raise Undecidable("a number that numerics: none does not compute was compared, or made whole")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unknown
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __mod__ = __rmod__ = _unknown
    __neg__ = __pos__ = __abs__ = _unknown
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _decide
    __int__ = __trunc__ = __floor__ = __ceil__ = __round__ = __floordiv__ = __rfloordiv__ = _decide


UNKNOWN = UnknownNumber()
