"""What one node does in a run, on any backend: make its replica, run the algorithm, note what came of it.

This file knows experiments, replicas and records. It must not know which backend it runs on.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from functools import partial

import pydantic
from torch import Tensor

from simcluster.checkpoints.keeper import Holder
from simcluster.checkpoints.shard import restore
from simcluster.errors import ENDED, PeerLost
from simcluster.experiment.copies import Copies
from simcluster.experiment.observed import observed
from simcluster.experiment.read import Experiment, read_experiment
from simcluster.experiment.values import missing_values
from simcluster.results.record import NodeRecord, Recorder
from simcluster.results.summary import ACCURACY, LOSS
from simcluster.results.weights import to_safetensors
from simcluster.transport import Transport
from simcluster.workloads import Replica

CLOCKS_APART_S = 1.0
"""How far the clocks of real nodes may be apart: each starts when it hears that the run begins."""

OBSERVED_RANK = 0
"""Whose replica is evaluated: a parameter server's, or any one of equals."""


# pydantic's validators import for a while when the first of them is made. It is made here, so that the process which
# nodes are forked from pays once, rather than each of them during its run.
pydantic.TypeAdapter(int)


def prepare(config_json: str) -> None:
    """Reads the experiment, own code and data included, and counts costs, before the clock starts: see `ClusterJob`."""
    experiment = _experiment(config_json)
    size = len(experiment.topology.workers)
    replica = experiment.workload.replica(0, size, experiment.seed, steps=1, numerics=experiment.numerics)
    # Counting what work costs takes as long as the work; all replicas of a process share what was counted.
    replica.gradient_cost(next(replica.batches()))
    replica.apply_cost()
    # Some work on tensors without values, on which costs are counted, makes torch import its compiler: not in the run.
    importlib.import_module("torch._dynamo")


async def run_node(
    node: Transport, recorder: Recorder, config_json: str, *, keep_weights: bool = False, evaluate: bool = True
) -> NodeRecord:
    """Runs the experiment in *config_json* as *node*; returns the filled record of *recorder*.

    With *keep_weights* the record holds this node's final weights, whatever its rank; without *evaluate* nobody's are
    judged.

    Whatever the algorithm raises is raised here, a lone exception freed of the groups around it; the record then holds
    what happened until then.
    """
    experiment = _experiment(config_json)
    workload, numerics = experiment.workload, experiment.numerics
    replica = workload.replica(node.rank, node.size, experiment.seed, steps=experiment.steps, numerics=numerics)
    time_s = begin(node, replica, recorder, experiment)
    evaluations = Evaluations(experiment, replica, recorder) if evaluate and node.rank == OBSERVED_RANK else None
    copies = (
        Copies(experiment.evaluate_every, replica, recorder) if evaluate and experiment.evaluate_consensus else None
    )
    try:
        async with asyncio.timeout(time_s) as limit:
            seen = observed(node, replica, recorder) if experiment.gradient_norms else node
            await experiment.algorithm(seen, replica, **experiment.algorithm_settings)
        replica.ledger.end(well=True)
    except TimeoutError:
        if not limit.expired():
            raise
    except SystemExit as leave:  # would end the process, and with it, in a simulator, the run without a word
        raise RuntimeError(f"the algorithm called sys.exit({leave.code!r})") from leave
    except PeerLost as lost:
        if not _time_is_up(lost, time_s, recorder):
            raise
    except BaseExceptionGroup as group:
        first = _first(group)
        if not _time_is_up(first, time_s, recorder):
            raise _explained(first, experiment) from group
    except Exception as error:
        explained = _explained(error, experiment)
        if explained is error:
            raise
        raise explained from error
    except KeyboardInterrupt:
        evaluations = None  # whoever interrupts a simulation does not wait for it to be judged
        raise
    finally:
        finished_s = recorder.end_algorithm()
        _note_samples(replica, recorder)
        if copies is not None:
            copies.finish()
        try:
            if evaluations is not None:
                await evaluations.finish(finished_s)
        finally:
            record = recorder.finish(replica.weights_sha256(), finished_s)
            if (keep_weights or node.rank == OBSERVED_RANK) and experiment.numerics == "real":
                record.weights = to_safetensors(replica.names, replica.parameters)
    return recorder.record


def begin(node: Transport, replica: Replica, recorder: Recorder, experiment: Experiment) -> float | None:
    """Makes *replica* what it was in the checkpoint that the run goes on from, if it does; returns the time left.

    From then on it is kept, if the experiment says so and the backend has somebody who takes it.
    """
    recorder.ledger = partial(replica.ledger.notes, in_hand=True) if replica.computes else None
    replica.is_to_leave = lambda: recorder.told_to_leave
    shard, settings, channel = recorder.restored, experiment.checkpoint, recorder.channel
    if shard is not None:
        restore(shard, replica, node.rng)
    began_s = shard.time_s if shard is not None else 0.0
    if settings is not None and channel is not None:
        judges = settings.best is not None
        now = partial(_later, recorder, began_s)
        replica.keeper = Holder(settings.every, replica, node, channel, now, judges=judges)
    # Whoever comes late, or again, has what is left of the run.
    late_s = recorder.now() if recorder.incarnation else 0.0
    return None if experiment.time_s is None else experiment.time_s - began_s - late_s


def _later(recorder: Recorder, by_s: float) -> float:
    return recorder.now() + by_s


def _explained(error: BaseException, experiment: Experiment) -> BaseException:
    """*error*, or what to do about it if it came of values that are not computed."""
    return (missing_values(error) if experiment.numerics == "none" else None) or error


def _note_samples(replica: Replica, recorder: Recorder) -> None:
    """What became of its batches; those still in its hands are lost, unless it ended well."""
    if replica.computes:
        replica.ledger.end(well=False)
        recorder.ledger = None
        recorder.record.samples.append(replica.ledger.notes())


def _time_is_up(error: BaseException, time_s: float | None, recorder: Recorder) -> bool:
    """Whether a peer is missed only because its clock reached the run's last moment a little earlier."""
    ended = isinstance(error, PeerLost) and error.reason == ENDED
    return ended and time_s is not None and recorder.now() > time_s - CLOCKS_APART_S


class Evaluations:
    """Held-out loss and accuracy of one replica, off the clock: weights are kept at the time, and judged at the end.

    The time and step of an evaluation are those at which its weights were held.
    """

    def __init__(self, experiment: Experiment, replica: Replica, recorder: Recorder) -> None:
        self._every = experiment.evaluate_every
        self._replica, self._recorder = replica, recorder
        self._kept: list[tuple[float, int, list[Tensor]]] = []
        self._next_step = (replica.done // self._every + 1) * self._every
        recorder.on_metrics = self._on_metrics

    def _on_metrics(self, step: int, _: dict[str, float]) -> None:
        if step >= self._next_step:
            self._next_step = (step // self._every + 1) * self._every
            self._kept.append((self._recorder.now(), step, self._replica.snapshot()))

    async def finish(self, finished_s: float) -> None:
        """Judges what was kept, and the final weights; lets heartbeats through in between."""
        self._recorder.on_metrics = None
        last_step = self._recorder.record.steps
        for time_s, step, weights in [*self._kept, (finished_s, last_step, self._replica.parameters)]:
            await asyncio.sleep(0)
            for name, value in self._replica.evaluate_weights(weights).items():
                self._recorder.metric_at(time_s, step, _NAMES[name], value)


_NAMES = {"loss": LOSS, "accuracy": ACCURACY}


_known: dict[str, Experiment] = {}
_MOST_KNOWN = 4


def remember(config_json: str, experiment: Experiment) -> None:
    """*experiment* has been read already: nodes that live in this process, as a simulator's do, need not read it again.

    The last word counts: own code may have changed since the same configuration was read before.
    """
    _known.pop(config_json, None)
    _known[config_json] = experiment
    if len(_known) > _MOST_KNOWN:
        del _known[next(iter(_known))]


def _experiment(config_json: str) -> Experiment:
    """Read once a process: a simulator has hundreds of nodes in one."""
    if config_json not in _known:
        remember(config_json, read_experiment(json.loads(config_json)))
    return _known[config_json]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception that is no group itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
