"""The check that a schedule of the learning rate counts the steps of the run."""

from __future__ import annotations

from simcluster.errors import UsageError
from simcluster.lab.verify.running import as_json
from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import NotClaimed, expect

FALLS_AFTER = 3
ALMOST_NOTHING = 1e-9


def schedule(subject: Subject) -> str:
    """Check that a rate that would fall after the last step never falls, on however many ranks and
    whoever steps; and that a schedule continues from a checkpoint where it was.
    """
    backends = [backend for backend in subject.backends if backend == "sim" or subject.claim.order_free]
    if not backends:
        raise NotClaimed("on real nodes its result depends on the order of arrival")
    request = subject.request()
    late = {"kind": "step", "gamma": ALMOST_NOTHING, "every": request.steps}
    try:
        subject.model.with_recipe({"schedule": late})
    except UsageError as error:
        raise NotClaimed(f"the workload has a schedule of its own ({error})") from None
    told = f"N = {request.size}: a rate that falls after step {request.steps} changes no bit"
    for backend in backends[:1] if subject.quick else backends:
        plain = subject.run(backend=backend).ended("without a schedule")
        scheduled = as_json({**subject.workload, "schedule": late})
        found = subject.run(workload=scheduled, backend=backend).ended("with a schedule")
        expect(plain.same_weights(found), f"it does not hold on {backend} that, {told}")
    _check_continues(subject)
    return f"{told}; a checkpoint has the place"


def _check_continues(subject: Subject) -> None:
    """Raise CheckFailed unless a replica that takes over the state of another takes its rates."""
    falling = subject.model.with_recipe({"schedule": {"kind": "step", "gamma": 0.5, "every": FALLS_AFTER}})
    whole, rest = (falling.replica(0, 1, subject.seed, 3 * FALLS_AFTER) for _ in range(2))
    gradients = [parameter.new_zeros(parameter.shape) for parameter in whole.parameters]
    for step in range(3 * FALLS_AFTER - 1):
        if step == FALLS_AFTER + 1:
            rest.load_checkpoint_state(whole.checkpoint_state())
        whole.apply(gradients)
        if step > FALLS_AFTER:
            rest.apply(gradients)
            told = f"step {step + 1} has the rate {rest.learning_rate} after a checkpoint, and {whole.learning_rate}"
            expect(rest.learning_rate == whole.learning_rate, f"{told} without one")
