"""The figures of a load as a table of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from simcluster.inference.load.metrics import Distribution, Figures

ROWS = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL", "itl_s"), ("E2EL", "e2el_s"))
COLUMNS = ("mean", "median", "std", "p90", "p99")


def lines(found: Figures) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{found.requests:,} requests in {found.duration_s:.4g} s: {found.completed:,} completed" + (
        f", {found.failed:,} failed ({', '.join(f'{count:,} {kind}' for kind, count in found.errors.items())})"
        if found.failed
        else ""
    )
    if not found.completed:
        return
    yield f"{'':10}" + "".join(f"{name:>12}" for name in COLUMNS)
    for name, key in ROWS:
        one: Distribution | None = getattr(found, key)
        if one is not None:
            yield f"{name:10}" + "".join(f"{_time(getattr(one, column)):>12}" for column in COLUMNS)
    rates = {"requests": found.completed, "output tokens": found.output_tokens}
    rates["tokens"] = found.prompt_tokens + found.output_tokens
    if found.good is not None:
        rates["good requests"] = found.good
    shown = {name: found.per_s(count) for name, count in rates.items()}
    yield "per second: " + ", ".join(f"{rate:.4g} {name}" for name, rate in shown.items() if rate is not None)
    yield f"in the system: {found.mean_in_system:.4g} requests on average"


def _time(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms"
