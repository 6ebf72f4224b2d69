"""The line that a real node logs about itself every few seconds, made from two readings of its counters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simcluster.units import format_size

WAITS_SHOWN, WAIT_CHARACTERS = 3, 100


@dataclass(frozen=True)
class CounterReading:
    """A node's counters at the time *at_s* of the run.

    *steps* is the planned number of steps, if known. *samples* counts the samples of all batches so
    far, each of *tokens* tokens if the workload has tokens. *seconds* has the seconds spent
    computing, sending and waiting. *waits* describes the pending operations. *machine* is a reading
    of MachineMeter.
    """

    at_s: float
    step: int = 0
    steps: int | None = None
    loss: float | None = None
    samples: int = 0
    tokens: int | None = None
    seconds: Sequence[float] = (0.0, 0.0, 0.0)
    waits: Sequence[str] = ()
    machine: Mapping[str, float] = field(default_factory=dict)


MACHINE = ("rss_bytes", "cpu_percent", "machine_cpu_percent", "machine_memory_percent", "temperature_C")
"""The keys of a reading of MachineMeter; a key is absent if the system does not provide it."""


def fields_of(before: CounterReading, now: CounterReading, *, ended: bool = False) -> dict[str, Any]:
    """Return the fields of a line, with rates and shares for the time between *before* and *now*.

    Unknown fields are None. *ended* marks the node's last line. If the node has made no step
    since *before* and has not ended, the fields include what it waits for.
    """
    elapsed_s = now.at_s - before.at_s
    # A group that re-forms after a loss resumes from an earlier step.
    made = max(0, now.step - before.step)
    samples_per_s = _rate(max(0, now.samples - before.samples), elapsed_s)
    shares = [_rate(b - a, elapsed_s) for a, b in zip(before.seconds, now.seconds, strict=True)]
    computing, sending, waiting = (None if share is None else round(min(1.0, max(0.0, share)), 4) for share in shares)
    known = now.loss is not None and math.isfinite(now.loss)
    fields: dict[str, Any] = {
        "ended": ended,
        "elapsed_s": round(now.at_s, 6),
        "step": now.step,
        "steps": now.steps,
        "loss": now.loss if known else None,
        "steps_per_s": _rate(made, elapsed_s),
        "samples_per_s": samples_per_s,
    }
    if now.tokens is not None:
        fields["tokens_per_s"] = None if samples_per_s is None else samples_per_s * now.tokens
    fields |= {"computing": computing, "sending": sending, "waiting": waiting}
    fields |= {key: now.machine.get(key) for key in MACHINE}
    if fields["rss_bytes"] is not None:
        fields["rss_bytes"] = int(fields["rss_bytes"])
    if not made and not ended:
        fields["waits_for"] = [wait[:WAIT_CHARACTERS] for wait in now.waits[:WAITS_SHOWN]]
    return fields


def text_of(name: str, fields: Mapping[str, Any]) -> str:
    """Return the known *fields* of node *name* as one line of text."""
    steps = fields["steps"]
    step = f"step {fields['step']}" + (f" of {steps}" if steps is not None else "")
    said = [f"ended after {fields['elapsed_s']:.3g} s at {step}" if fields["ended"] else step]
    if fields["loss"] is not None:
        said.append(f"loss {fields['loss']:.4g}")
    amount = "tokens" if "tokens_per_s" in fields else "samples"
    for counted in ("steps", amount):
        if (number := fields[f"{counted}_per_s"]) is not None:
            said.append(f"{number:,.0f} {counted}/s" if number >= 100 else f"{number:.3g} {counted}/s")
    for key in ("computing", "sending", "waiting"):
        if fields[key] is not None:
            said.append(f"{key} {100 * fields[key]:.0f} %")
    said += _machine(fields)
    if "waits_for" in fields:
        said.append(f"no step, waits for {'; '.join(fields['waits_for']) or 'something outside the transport'}")
    return f"{name}: {', '.join(said)}"


def _machine(fields: Mapping[str, Any]) -> list[str]:
    said = []
    if fields["rss_bytes"] is not None:
        said.append(f"memory {format_size(round(fields['rss_bytes'], -6))}")
    if fields["cpu_percent"] is not None:
        said.append(f"CPU {fields['cpu_percent']:.0f} %")
    if fields["machine_cpu_percent"] is not None and fields["machine_memory_percent"] is not None:
        cpu, memory = fields["machine_cpu_percent"], fields["machine_memory_percent"]
        said.append(f"machine CPU {cpu:.0f} % memory {memory:.0f} %")
    if fields["temperature_C"] is not None:
        said.append(f"{fields['temperature_C']:.0f} °C")
    return said


def _rate(amount: float, elapsed_s: float) -> float | None:
    return amount / elapsed_s if elapsed_s > 0 else None
