"""Checks of determinism: the same experiment and seed give the same bits.

A run is repeated in this process and in a process with another PYTHONHASHSEED. Both backends must
give the same bits if the result does not depend on the order of arrival; otherwise both must keep
the same laws.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from simcluster.experiment.read.read import read_experiment
from simcluster.lab.verify.checks.conservation import balance
from simcluster.lab.verify.checks.learning import loss_before_and_after
from simcluster.lab.verify.probe import DRAWN
from simcluster.lab.verify.running import RunResult, run_plan
from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import NotClaimed, expect, listed
from simcluster.process.generators import seeded
from simcluster.process.intra_op import use_one_thread
from simcluster.rng import seed_sequence

LIMIT_S = 120.0


def determinism(subject: Subject) -> str:
    """Check that a run repeats itself to the bit, and that another seed gives another trace."""
    request = subject.request(uneven=True)
    where = f"N = {request.size}"
    first, second = subject.runner.run(request).ended(where), subject.run(uneven=True, again=1)
    same = first.trace_sha256 == second.trace_sha256 and first.same_weights(second)
    expect(same, f"{where}, seed {request.seed}: run twice in one process, {_what_differs(first, second)}")
    other_seed = subject.run(uneven=True, seed=request.seed + 1)
    another = other_seed.trace_sha256 != first.trace_sha256
    expect(another, f"{where}: seeds {request.seed} and {request.seed + 1} give one trace: nothing is drawn")
    told = f"{where}: twice in one process the same trace and weights"
    if not subject.quick:
        elsewhere = _elsewhere(json.dumps(subject.runner.document(request)))
        others = f"{told}, but a process with another PYTHONHASHSEED has others: {elsewhere[:200]}"
        expect(elsewhere == _digests(first), others)
        told += ", and in another with another PYTHONHASHSEED"
    return f"{told}; seed {request.seed + 1} gives another trace"


def draws(subject: Subject) -> str:
    """Check that a rank's draws from the global generators depend only on the seed and the rank."""
    request = subject.request()
    with seeded(seed_sequence(request.seed, "another state of this process")):
        other = subject.runner.plan(request).workload.digests
    expect(subject.model.digests == other, f"seed {request.seed}: the workload makes other samples the second time")
    everybody = tuple(range(request.size))
    numbers = _drawn(subject.run(drawing=everybody))
    with seeded(seed_sequence(request.seed, "another state of this process")):
        again = _drawn(subject.run(drawing=everybody, again=1))
    where = f"N = {request.size}"
    drawers = [rank for rank, found in enumerate(numbers) if found]
    if not drawers:
        raise NotClaimed(f"{where}: no rank records a step, at which it would draw")
    for rank in drawers:
        expect(numbers[rank] == again[rank], f"{where}: rank {rank} draws other numbers in a second run of one seed")
    expect(
        len({str(numbers[rank]) for rank in drawers}) == len(drawers), f"{where}: several ranks draw the same numbers"
    )
    last = drawers[-1]
    alone = _drawn(subject.run(drawing=(last,)))[last] == numbers[last]
    expect(alone, f"{where}: rank {last} draws other numbers if no other rank draws any")
    return f"{where}: each rank draws its own numbers, in a second run the same, whether or not other ranks draw"


def _drawn(done: RunResult) -> list[list[list[tuple[int, float]]]]:
    """Return each rank's draws, grouped by generator."""
    found = done.ended(f"N = {len(done.nodes)}").metrics()
    return [[own[name] for name in DRAWN if name in own] for own in found]


def _digests(done: RunResult) -> str:
    """Return one line with the digests that must be equal in two runs."""
    return json.dumps([done.trace_sha256, [node.weights_sha256 for node in done.nodes]])


def _what_differs(first: RunResult, second: RunResult) -> str:
    ranks = [a.rank for a, b in zip(first.nodes, second.nodes, strict=True) if a.weights_sha256 != b.weights_sha256]
    return f"the weights of ranks {ranks} differ" if ranks else "the weights are equal and the trace is not"


def _elsewhere(document: str) -> str:
    """Run the experiment *document* in a process with another PYTHONHASHSEED.

    Return its digests or, if the process fails, the reason.
    """
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    try:
        done = subprocess.run(  # Its only arguments are this package's own.
            [sys.executable, "-m", "simcluster.lab.verify.checks.determinism"],
            input=document,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {LIMIT_S:g} s"
    return done.stdout.strip() if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1]


def backends(subject: Subject) -> str:
    """Check that both backends give the same bits.

    If the result depends on the order of arrival, check that both keep the same laws.
    """
    if len(subject.backends) < 2:
        raise NotClaimed(f"only asked for on {subject.backends[0]}")
    order_free = subject.claim.order_free
    sizes = [max(size for size in subject.sizes if size <= 3)] if subject.quick else list(subject.sizes)
    for size in sizes:
        simulated, real = subject.run(size), subject.run(size, backend="sockets")
        failure = f"in the simulator {simulated.failure}" if simulated.error is not None else ""
        if real.error is not None and not failure:
            failure = f"on sockets {real.failure}"
        wrong = failure or (_difference if order_free or size == 1 else _broken_law)(subject, simulated, real)
        if wrong and not (subject.is_claimed or failure or _broken_law(subject, simulated, real)):
            raise NotClaimed(f"N = {size}: {wrong}; the order of messages is not claimed to be irrelevant")
        expect(not wrong, f"N = {size}: {wrong}")
    if order_free or not subject.is_claimed:
        return f"N = {listed(sizes)}: the same weights to the bit, messages and bytes on every rank"
    return f"N = {listed(sizes)}: on sockets every message is accounted for, and the loss falls"


def _difference(_: Subject, simulated: RunResult, real: RunResult) -> str:
    """Describe the first difference between two runs that must be equal; "" if there is none."""
    for mine, other in zip(simulated.nodes, real.nodes, strict=True):
        if mine.weights_sha256 != other.weights_sha256:
            return f"rank {mine.rank} has other weights on sockets than in the simulator"
        if mine.sent_to != other.sent_to:
            counts = f"{other.sent_to} on sockets and {mine.sent_to} in the simulator"
            return f"rank {mine.rank} sends {counts} (rank: [messages, bytes])"
    if simulated.tensor_bytes != real.tensor_bytes:
        return f"{simulated.tensor_bytes} bytes of tensors in the simulator, {real.tensor_bytes} on sockets"
    return ""


def _broken_law(subject: Subject, _: RunResult, real: RunResult) -> str:
    """Describe a law that the run on sockets breaks; "" if the run keeps all laws."""
    if wrong := balance(subject, real):
        return wrong
    before, after = loss_before_and_after(real)
    return "" if after < before else f"on sockets the loss goes from {before:.4g} to {after:.4g}"


if __name__ == "__main__":
    # In the other process: run the experiment on standard input, and print its digests.
    use_one_thread()
    print(_digests(run_plan(read_experiment(json.load(sys.stdin), backend="sim"))))
