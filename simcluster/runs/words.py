"""Write numbers as text for people: times, sizes, shares. Only this module rounds for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ABSENT = "-"


def seconds(time_s: float | None) -> str:
    """Return a duration: '3.21 s', '48.0 ms', '2 min 05 s', '3 h 20 min'."""
    if time_s is None or not math.isfinite(time_s):
        return ABSENT
    if time_s >= 3600:
        minutes = round(time_s / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    if time_s >= 60:
        whole = round(time_s)
        return f"{whole // 60} min {whole % 60:02d} s" if whole < 3600 else "1 h 00 min"
    found = _scaled(time_s, ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")))
    return found or ("0 s" if time_s == 0 else f"{digits(time_s * 1e9)} ns")


def size(size_bytes: float | None) -> str:
    """Return a size in decimal units, '12.3 MB'; below 1 kB, whole bytes."""
    if size_bytes is None:
        return ABSENT
    return _scaled(size_bytes, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))) or f"{size_bytes:.0f} B"


def energy(joules: float | None) -> str:
    """Return an energy: '412 J', '1.50 kJ', '3.60 MJ'."""
    if joules is None or not math.isfinite(joules):
        return ABSENT
    found = _scaled(joules, ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"), (1.0, "J")))
    return found or ("0 J" if joules == 0 else f"{digits(joules * 1e3)} mJ")


def _scaled(value: float, units: Iterable[tuple[float, str]]) -> str:
    """Return *value* in the first of *units* that is not larger than *value*, or ""."""
    return next((f"{digits(value / scale)} {unit}" for scale, unit in units if value >= scale), "")


def price(price_usd: float | None) -> str:
    """Return a price: '12.34 USD', or three significant digits below 1 USD."""
    if price_usd is None or not math.isfinite(price_usd):
        return ABSENT
    return f"{price_usd:,.2f} USD" if price_usd >= 1 or price_usd == 0 else f"{digits(price_usd)} USD"


def share(fraction: float | None) -> str:
    """Return a fraction in percent: '83 %', '0.4 %', '< 0.01 %'."""
    if fraction is None or not math.isfinite(fraction):
        return ABSENT
    percent = fraction * 100
    if 0 < percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"


def accuracy(fraction: float | None) -> str:
    """Return an accuracy in percent: '97.3 %'."""
    return ABSENT if fraction is None or not math.isfinite(fraction) else f"{fraction * 100:.1f} %"


def count(number: int) -> str:
    return f"{number:,}"


def number(value: float | None) -> str:
    """Return *value* with four significant digits."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:.4g}"


def digits(value: float) -> str:
    """Return *value* with three significant digits, without an exponent."""
    decimals = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 2
    return f"{value:.{decimals}f}"


def plural(amount: int, noun: str) -> str:
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def steps(summary: Mapping[str, Any]) -> str:
    """Return '10 steps', or '10 steps per worker, 50 updates' if a server counts differently."""
    updates = summary.get("updates")
    told = plural(summary["steps"], "step")
    return told if updates is None else f"{told} per worker, {plural(updates, 'update')}"


def warnings(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each warning of a run."""
    return [f"warning: {row['text']}" for row in summary.get("warnings", ())]


def notes(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each note of a run."""
    return [f"note: {text}" for text in summary.get("notes", ())]


def listing(items: list[str]) -> str:
    """Return 'a', 'a and b', or 'a, b and c'; "" without items."""
    if len(items) > 1:
        return ", ".join(items[:-1]) + " and " + items[-1]
    return items[0] if items else ""


def some(items: Sequence[str], most: int) -> str:
    """Return the first *most* of *items* as a listing, and the number of the others: 'a, b and 7
    more'.
    """
    more = [f"{len(items) - most} more"] if len(items) > most else []
    return listing([*items[:most], *more])


def some_of(names: Sequence[str]) -> str:
    """Return up to four *names* as 'a, b, c and d', and more as 'a, b, c and 7 more'."""
    return some(names, 3 if len(names) > 4 else 4)


def timed_only(summary: Mapping[str, Any]) -> bool:
    """Return whether the run of *summary* was timing-only: it has no loss, accuracy or weights."""
    return summary.get("numerics") == "none"
