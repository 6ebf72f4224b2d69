"""Determinism: the same experiment and seed give the same bits, twice here and with another PYTHONHASHSEED."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from simcluster.verify.running import Done
from simcluster.verify.subject import Subject
from simcluster.verify.tell import failed, held
from simcluster.verify.verdict import Check

NAME = "determinism"
LIMIT_S = 120.0


def determinism(subject: Subject) -> Iterator[Check]:
    request = subject.request(uneven=True)
    first, second = subject.runner.run(request), subject.run(uneven=True, again=1)
    where = f"N = {request.size}"
    if first.error is not None:
        yield failed(NAME, f"{where}: {first.failure}")
        return
    if first.trace_sha256 != second.trace_sha256 or not first.same_weights(second):
        yield failed(NAME, f"{where}, seed {request.seed}: run twice in one process, {_what_differs(first, second)}")
        return
    other_seed = subject.run(uneven=True, seed=request.seed + 1)
    if other_seed.trace_sha256 == first.trace_sha256:
        yield failed(NAME, f"{where}: seeds {request.seed} and {request.seed + 1} give one trace: nothing is drawn")
        return
    told = f"{where}: twice in one process the same trace and weights"
    if not subject.quick:
        elsewhere = _elsewhere(json.dumps(subject.runner.document(request)))
        if elsewhere != digests(first):
            yield failed(NAME, f"{told}, but a process with another PYTHONHASHSEED has others: {elsewhere[:200]}")
            return
        told += ", and in another with another PYTHONHASHSEED"
    yield held(NAME, f"{told}; seed {request.seed + 1} gives another trace")


def digests(done: Done) -> str:
    """Return everything that must be equal, as one line."""
    return json.dumps([done.trace_sha256, [node.weights_sha256 for node in done.nodes]])


def _what_differs(first: Done, second: Done) -> str:
    ranks = [a.rank for a, b in zip(first.nodes, second.nodes, strict=True) if a.weights_sha256 != b.weights_sha256]
    return f"the weights of ranks {ranks} differ" if ranks else "the weights are equal and the trace is not"


def _elsewhere(document: str) -> str:
    """Return the digests of the experiment in a separate process."""
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    try:
        done = subprocess.run(  # this interpreter, with a module of ours
            [sys.executable, "-m", "simcluster.verify.again"],
            input=document,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {LIMIT_S:g} s"
    return done.stdout.strip() if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1]
