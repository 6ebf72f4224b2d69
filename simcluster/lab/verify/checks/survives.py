"""Checks of faults: declared outcomes occur, and every run ends."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from simcluster.errors import NodeFailed, PeerLost, Stuck
from simcluster.lab.verify import faults
from simcluster.lab.verify.claim import Outcome
from simcluster.lab.verify.running import RunResult
from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import Check, expect, judged

SIZE = 3
STEPS = {"sim": 24, "sockets": 100_000}
QUICK = (
    "crash of a worker",
    "crash of the server",
    "short hang",
    "long hang of a worker",
    "short cut",
    "long cut of a worker",
)
ON_SOCKETS = ("crash of a worker", "short hang")
"""Names of the faults that are also tried on real nodes, where each takes seconds."""
UNTIL = {"ends well": "1.5 s", "goes on": "3.5 s", "fails": "30 s"}
"""Outcome -> time limit of a run on real nodes."""


def survives(subject: Subject) -> Iterator[Check]:
    """Yield one line of the table for each fault with a declared outcome.

    If the claim declares none, only check that no rank hangs after a crash.
    """
    if SIZE not in subject.sizes:
        yield Check("fault", "not claimed", f"faults need {SIZE} ranks, which were not requested")
    elif not subject.claim.outcomes:
        yield judged("fault: crash of a worker", partial(_ends_somehow, subject))
    else:
        for name, expected in subject.claim.outcomes.items():
            if not subject.quick or name in QUICK or name not in faults.NAMES:
                yield judged(f"fault: {name}", partial(_as_declared, subject, name, expected))


def _as_declared(subject: Subject, name: str, expected: Outcome) -> str:
    expect(name in faults.NAMES, "unknown fault; docs/faults.md lists them")
    on_sockets = name in ON_SOCKETS and not subject.quick
    tried = [backend for backend in subject.backends if backend == "sim" or on_sockets]
    for backend in tried:
        time = UNTIL[expected] if backend == "sockets" else ""
        done = subject.run(SIZE, fault=name, backend=backend, steps=STEPS[backend], time=time)
        found = outcome_of(done)
        words = done.failure or (f"lost {', '.join(done.lost)}" if done.lost else "all ranks finish")
        expect(found == expected, f"on {backend} it {found}, but the claim declares {expected}: {words}")
        expect(bool(done.faults), f"on {backend} the run ended before it happened")
    return f"{expected}, as declared, on {' and '.join(tried)}"


def outcome_of(done: RunResult) -> str:
    """Return the outcome of *done*: an `Outcome`, "never ends" or "breaks"."""
    if done.error is None:
        return "goes on" if done.lost else "ends well"
    if isinstance(done.error, PeerLost):
        return "fails"
    return "never ends" if isinstance(done.error, Stuck) else "breaks"


def _ends_somehow(subject: Subject) -> str:
    done = subject.run(SIZE, fault="crash of a worker", steps=STEPS["sim"])
    found = outcome_of(done)
    expect(not isinstance(done.error, NodeFailed) and found != "never ends", f"it {found}: {done.failure}")
    expect(found != "breaks", done.failure)
    return f"no outcome is declared; it {found}, and no rank waits for ever"
