"""The figures of a load as a table of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from simcluster.lm.load.metrics import Distribution, LoadFigures

ROWS = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL", "itl_s"), ("E2EL", "e2el_s"))
COLUMNS = ("mean", "median", "std", "p90", "p99")


def lines(found: LoadFigures) -> Iterator[str]:
    """Yield the lines of a table with the figures *found*."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.errors.items())
    failed = f", {found.failed:,} failed ({kinds})" if found.failed else ""
    yield f"{found.requests:,} requests in {found.duration_s:.4g} s: {found.completed:,} completed{failed}"
    if not found.completed:
        return
    yield f"{'':10}" + "".join(f"{name:>12}" for name in COLUMNS)
    for name, key in ROWS:
        one: Distribution | None = getattr(found, key)
        if one is not None:
            yield f"{name:10}" + "".join(f"{_time(getattr(one, column)):>12}" for column in COLUMNS)
    rates = {"requests": found.completed, "output tokens": found.output_tokens}
    rates["tokens"] = found.prompt_tokens + found.output_tokens
    yield "per second: " + ", ".join(f"{found.per_s(count) or 0:.4g} {name}" for name, count in rates.items())
    if found.good is not None:
        yield f"goodput: {found.per_s(found.good) or 0:.4g} requests per second that meet all objectives"
    yield f"in the system: {found.mean_in_system:.4g} requests on average"


def _time(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms"
