"""Faults: the declared outcomes occur, and every run ends."""

from __future__ import annotations

from collections.abc import Iterator

from simcluster.errors import NodeFailed, PeerLost, Stuck
from simcluster.verify import faults
from simcluster.verify.running import Done
from simcluster.verify.subject import Subject
from simcluster.verify.tell import failed, held, not_claimed
from simcluster.verify.verdict import Check

NAME = "fault"
SIZE = 3
STEPS = {"sim": 24, "sockets": 100_000}
QUICK = ("crash of a worker", "crash of the server", "short hang", "long hang of a worker", "short cut")
ON_SOCKETS = ("crash of a worker", "short hang")
"""Faults to try on real nodes, where each takes seconds."""
UNTIL = {"ends well": "1.5 s", "goes on": "3.5 s", "fails": "30 s"}
"""Time limits of runs on real nodes."""


def survives(subject: Subject) -> Iterator[Check]:
    """Yield one line per fault with a declared outcome; without declarations, check that a crash makes no rank hang."""
    if SIZE not in subject.sizes:
        yield not_claimed(NAME, f"faults need {SIZE} ranks, which were not requested")
        return
    declared = dict(subject.claim.outcomes) if subject.claim is not None else {}
    if not declared:
        yield _ends_somehow(subject)
        return
    for name, expected in declared.items():
        line = f"{NAME}: {name}"
        if subject.quick and name in faults.NAMES and name not in QUICK:
            continue
        if name not in faults.NAMES:
            yield failed(line, "unknown fault; docs/faults.md lists them")
            continue
        reasons = []
        for backend in subject.backends:
            if backend == "sockets" and (subject.quick or name not in ON_SOCKETS):
                continue
            done = _run(subject, name, backend, UNTIL[expected])
            found = outcome_of(done)
            if found != expected:
                there = f"lost {', '.join(done.lost)}" if done.lost else "all ranks finish"
                words = done.failure or there
                yield failed(line, f"on {backend} it {found}, and {expected} is declared: {words}")
                break
            if not done.faults:
                yield failed(line, f"on {backend} the run ended before it happened")
                break
            reasons.append(backend)
        else:
            yield held(line, f"{expected}, as declared, on {' and '.join(reasons)}")


def outcome_of(done: Done) -> str:
    """Return the outcome as a `simcluster.verify.claim.Outcome`, or what else happened."""
    if done.error is None:
        return "goes on" if done.lost else "ends well"
    if isinstance(done.error, PeerLost):
        return "fails"
    return "never ends" if isinstance(done.error, Stuck) else "breaks"


def _ends_somehow(subject: Subject) -> Check:
    name = "crash of a worker"
    done = _run(subject, name, "sim", "")
    found = outcome_of(done)
    line = f"{NAME}: {name}"
    if isinstance(done.error, NodeFailed) or found == "never ends":
        return failed(line, f"it {found}: {done.failure}")
    if found == "breaks":
        return failed(line, done.failure)
    return held(line, f"no outcome is declared; it {found}, and no rank waits for ever")


def _run(subject: Subject, fault: str, backend: str, until: str) -> Done:
    time = until if backend == "sockets" else ""
    return subject.run(SIZE, fault=fault, backend=backend, steps=STEPS[backend], time=time)
