"""A number that a timing-only run does not know. Code may compute with it and send it, but no
decision may depend on it.
"""

from __future__ import annotations

from typing import Any, NoReturn


class Undecidable(TypeError):
    """The error for comparing an unknown number, or converting it to an integer."""


class UnknownNumber(float):
    """A NaN that takes as many bytes in a message as any other float.

    Arithmetic with it has an unknown result, too. Comparisons with it, and conversions to an
    integer, raise Undecidable. A plain NaN would not be enough: `if loss < best` is silently false
    for NaN, so the simulated run would take a different path from the real one.
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
