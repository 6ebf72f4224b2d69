"""Numbers of the documentation's pages: computed while the page is built, and checked against what it says of them.

    computed("ring", run.simulated_s, expected=0.24, within=1e-3, text="{:.3f} s")

in a code cell of a page, and {glue:text}`ring` in its prose. The build fails where the value has moved.
"""

from __future__ import annotations

import builtins
import math
import re
from typing import Any

PREFIX = "application/papermill.record/"  # of outputs that myst-nb keeps for its roles, and does not show
SCALES = (1, 100, *(10.0**power for power in (3, 6, 9, 12, -3, -6, -9, -12)), 1 / 60, 1 / 3600, 1 / 86400)


class Moved(AssertionError):
    """A number of a page is not what the page says."""


def computed(name: str, value: float, *, expected: float, within: float = 0.0, text: str | None = None) -> None:
    """Show *text* as *name* in the page, if *value* is *expected* up to the share *within* of it.

    *text* is a format of the value, such as "{:.2f} s". It may be formatted already, in another unit too: then one of
    its numbers must be the value, rounded. Without digits it is words, such as "twice".
    """
    if not abs(value - expected) <= within * abs(expected):
        raise Moved(f"{name}: found {value!r}, expected {expected!r} within {within:g} of it; is the page still right?")
    shown = (text or "{:g}").format(value)
    if not _states(shown, value):
        raise Moved(f"{name}: the text {shown!r} does not state {value!r}")
    _keep(name, shown)


def _states(text: str, value: float) -> bool:
    """Return whether *text* has no number, or has *value* as one, rounded, in some unit."""
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?", text)
    return not numbers or any(_rounds_to(number.replace(",", ""), value) for number in numbers)


def _rounds_to(number: str, value: float) -> bool:
    digits, _, power = number.partition("e")
    half = 0.5 * 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return any(math.isclose(float(number), value * scale, rel_tol=1e-9, abs_tol=half * (1 + 1e-9)) for scale in SCALES)


def _keep(name: str, text: str) -> None:
    """Keep *text* for the roles of myst-nb; outside a kernel, as in a test, print it."""
    if not hasattr(builtins, "get_ipython"):
        print(f"{name}: {text}")
        return
    from IPython.display import display

    content: dict[str, Any] = {f"{PREFIX}text/plain": text}
    display(content, raw=True, metadata={"scrapbook": {"name": name, "mime_prefix": PREFIX}})
