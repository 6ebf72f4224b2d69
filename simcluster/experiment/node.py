"""The program of a node on any backend: take part in a run, record it, explain errors."""

from __future__ import annotations

import asyncio
import json
import re
import traceback
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pydantic
import torch

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.compute import HOST, device_of, name_of
from simcluster.errors import ENDED, NeedsValues, PeerLost
from simcluster.experiment.node_part import OBSERVED_RANK, NodePart, in_parts
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.warm_up import COMPILER, needs_compiler, warm_up
from simcluster.process.generators import RANKS
from simcluster.process.kernels import numerics
from simcluster.process.memory import peak_rss_bytes, return_freed_memory, rss_bytes
from simcluster.process.own_frames import is_own, original
from simcluster.process.unawaited import close_unawaited
from simcluster.rng import seed_sequence
from simcluster.runs.doubts import SYSTEM
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.scripts.rank_process import PRELOADED, get_ready
from simcluster.scripts.run_script import NAME as SCRIPT
from simcluster.transport import Transport
from simcluster.unknown_number import Undecidable

CLOCKS_APART_S = 1.0
"""Limit on the difference between real nodes' clocks, which start when their nodes are notified."""

WORK_S = 5.0
"""Timeout for the unfinished work of a failed or stopped node; after it, weights are dropped."""

LAST_STEP_S = 240.0
"""Timeout for the unfinished work when the run's time is up; after it, the node fails."""

LARGE_BYTES = 64 * 1024**2
"""The size of weights from which a node returns freed memory to the system.

Otherwise glibc would keep several times as much.
"""

RESUMES = "resumes"
"""The key that a node finds in the experiment of a run that resumes from a checkpoint."""

_TORCH = str(Path(torch.__file__).parent)
_SAID_BY_TORCH = re.compile(
    r"meta tensor|meta device|device meta|register_meta|Meta kernel|integer tensors of a single element"
    r"|Tensor\.__format__",
    re.IGNORECASE,
)
"""Messages of torch's errors when a tensor without values is read, materialised, or mixed with a
real one.
"""

_SAID_OF_COROUTINES = re.compile(r"\bcoroutine\b")
"""Messages of Python's and torch's errors when a call without `await` is used as a value."""

# The first pydantic validator imports modules, which takes a while. Create it here, so that the
# process from which nodes are forked pays once, instead of each node during its run.
pydantic.TypeAdapter(int)


def prepare(config_json: str) -> list[str]:
    """Read the experiment, its code and data, and count costs before the clock starts.

    Return hashes of the samples, to compare between nodes; see `ClusterJob`.
    """
    document = json.loads(config_json)
    if document["algorithm"].get("name") != SCRIPT:  # a script trains in another process
        warm_up(with_compiler=needs_compiler(document))
    _empty_bytes[:] = [rss_bytes()]
    experiment = _experiment(config_json)
    if experiment.algorithm_name == SCRIPT:
        get_ready(is_simulated=experiment.backend == "sim")
    size = len(experiment.topology.workers)
    if experiment.backend != "sim" and in_parts(experiment, size):
        return_freed_memory()
    make = partial(experiment.workload.replica, 0, size, experiment.seed, steps=1, numerics=experiment.numerics)
    replica = make(in_parts=in_parts(experiment, size), rehearses=True)
    if experiment.backend != "sim" and sum(shape.nbytes for shape in replica.shapes) >= LARGE_BYTES:
        return_freed_memory()
    # Counting the cost of work takes as long as the work. All replicas in a process share the
    # cached results of these calls.
    replica.gradient_cost(next(replica.batches()))
    replica.apply_cost()
    _ = replica.running
    return experiment.workload.digests


def preloads(config_json: str) -> list[str]:
    """Return the names of the modules that `prepare`, or the rank of a script, imports."""
    document = json.loads(config_json)
    if document["algorithm"].get("name") == SCRIPT:
        return PRELOADED
    return [COMPILER] if needs_compiler(document) else []


async def run_node(
    node: Transport, recorder: Recorder, config_json: str, *, keep_weights: bool = False, evaluate: bool = True
) -> NodeRecord:
    """Run the experiment in *config_json* as *node*; return the filled record of *recorder*.

    If *keep_weights*, record this node's final weights, whatever its rank. If *evaluate*, evaluate
    the weights that represent the run.

    Re-raise an exception of the algorithm without the exception groups around it. The record of
    *recorder* then has everything up to the exception.
    """
    experiment = _experiment(config_json)
    device = _device(experiment, node.name)
    if experiment.numerics == "real":
        recorder.record.numerics = numerics(name_of(device))
    with _generators(experiment, node, recorder):
        return await _run(node, recorder, experiment, device, keep_weights=keep_weights, evaluate=evaluate)


def _generators(experiment: Experiment, node: Transport, recorder: Recorder) -> AbstractContextManager[None]:
    """Return a context where user code of *node* draws from separate global generators.

    A node that rejoins, or resumes from a checkpoint, gets other seeds: it must not repeat the
    noise that is already in the weights.
    """
    is_ours = experiment.algorithm is ALGORITHMS.get(experiment.algorithm_name)
    if is_ours and (experiment.numerics == "none" or not experiment.own_code):
        return nullcontext()
    begun = recorder.incarnation, recorder.restored.step if recorder.restored is not None else 0
    notice = partial(recorder.record.notice, SYSTEM)
    return RANKS.own(seed_sequence(experiment.seed, "global", node.name, *map(str, begun)), notice)


async def _run(
    node: Transport, recorder: Recorder, experiment: Experiment, device: torch.device, *, keep_weights: bool,
    evaluate: bool,
) -> NodeRecord:  # fmt: skip
    part = NodePart(node, recorder, experiment, evaluate=evaluate, whole=keep_weights, device=device)
    time_s = part.time_left_s
    try:
        async with asyncio.timeout(time_s) as limit:
            await part.run()
        part.replica.ledger.end(well=True)
        recorder.record.ended_well = True
    except TimeoutError:
        if not limit.expired():
            raise
        recorder.record.ended_well = True
    # A SystemExit would end the process silently, and with it all nodes of a simulation.
    except SystemExit as leave:
        raise RuntimeError(f"the algorithm called sys.exit({leave.code!r})") from leave
    except PeerLost as lost:
        if not _time_is_up(lost, time_s, recorder):
            raise
        recorder.record.ended_well = True
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if not _time_is_up(first, time_s, recorder):
            raise _explained(first, experiment) from group
        recorder.record.ended_well = True
    except Exception as error:
        explained = _explained(error, experiment)
        if explained is error:
            raise
        raise explained from error
    except KeyboardInterrupt:
        recorder.is_interrupted = True
        raise
    finally:
        finished_s = part.end()
        # A step that still runs after the algorithm was cancelled changes the weights, so wait for
        # it.
        is_settled = recorder.settle(LAST_STEP_S if recorder.record.ended_well else WORK_S)
        try:
            if is_settled and not recorder.is_interrupted:
                await part.judge(finished_s)
            else:
                part.keep_evaluations()
        finally:
            has_model = facts_of(experiment.algorithm).has_model
            sha256 = part.replica.weights_sha256() if is_settled and has_model else None
            record = recorder.finish(sha256, finished_s)
            record.holds_part = part.replica.is_parted and node.rank != OBSERVED_RANK
            stands = keep_weights or part.stands_for_the_run
            if is_settled and stands and has_model and experiment.numerics == "real":
                file = part.replica.weights_file()
                record.weights = file.content if file is not None else None
            if experiment.backend != "sim":
                record.peak_rss_bytes = peak_rss_bytes()
                empty_bytes = _empty_bytes[-1] if _empty_bytes else None
                record.grown_rss_bytes = None if empty_bytes is None else record.peak_rss_bytes - empty_bytes
    if not is_settled:
        recorder.record.ended_well = False
        raise RuntimeError(f"the work in hand when the algorithm ended still runs after {LAST_STEP_S:g} s")
    return recorder.record


def device_of_node(config_json: str, name: str) -> torch.device:
    """Return the device of the node *name*. Raise UsageError if this machine does not have it."""
    return _device(_experiment(config_json), name)


def _device(experiment: Experiment, name: str) -> torch.device:
    """Return the device of the node *name*.

    The simulator computes on the host, even if the simulated node has an accelerator.
    """
    if experiment.backend == "sim" or experiment.numerics == "none":
        return HOST
    return device_of(experiment.topology.nodes[name].compute)


def _explained(error: BaseException, experiment: Experiment) -> BaseException:
    """Return *error* with notes that say what to write instead, if the mistake is known.

    Return a NeedsValues instead if a timing-only run lacks the value that caused *error*.
    """
    if isinstance(error, (AttributeError, TypeError)) and _SAID_OF_COROUTINES.search(str(error)):
        error.add_note(_without_await(error))
    if isinstance(error, TypeError):
        for remedy in [text for said, text in _REMEDIES.items() if re.search(said, str(error))]:
            error.add_note(remedy)
    by_torch = isinstance(error, (RuntimeError, TypeError)) and _SAID_BY_TORCH.search(str(error))
    if experiment.numerics != "none" or not (by_torch or isinstance(error, Undecidable)):
        return error
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_TORCH) and "simcluster/unknown" not in frame.filename.replace("\\", "/")
    ]
    where = f"{own[-1].filename}:{own[-1].lineno} ({own[-1].name})" if own else "the algorithm"
    return NeedsValues(original(where), f"{type(error).__name__}: {str(error).splitlines()[0]}")


_REMEDIES = {
    r"compute\(\) missing .*'cost'": "a node's work has a cost, which says how long it takes: "
    "await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))",
    r"'(steps|rounds|async_generator)' object is not (iterable|an iterator)": "steps are awaited: write "
    "`async for` in place of `for`",
}
"""Python's messages for common mistakes in an algorithm -> what to write instead."""


def _without_await(error: BaseException) -> str:
    """Return a note for *error*, which was raised because an `await` is missing."""
    for name, made_at in close_unawaited(error):
        if made_at:
            return f"{made_at} calls {name.rpartition('.')[2]} without await: write `await` in front of it"
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    at = f"{lines[-1].filename}:{lines[-1].lineno} ({lines[-1].name})" if lines else "the algorithm"
    return f"{at} has a coroutine in place of its result: write `await` in front of the call that made it"


def _time_is_up(error: BaseException, time_s: float | None, recorder: Recorder) -> bool:
    """Return whether *error* only says that a peer has ended at the time limit, by a faster clock.

    Return False for a node that joined late or rejoined and has not trained: all others had ended
    before, so it has missed the run.
    """
    ended = isinstance(error, PeerLost) and error.reason == ENDED
    took_part = recorder.record.trained or not recorder.incarnation
    return ended and took_part and time_s is not None and recorder.now() > time_s - CLOCKS_APART_S


_empty_bytes: list[int | None] = []
"""The resident bytes of this process just before it made a workload; [] before the first."""

_known: dict[str, Experiment] = {}
"""Configuration -> experiment for the last few: a sweep in one process would otherwise keep all."""

_MOST_KNOWN = 4


def remember(config_json: str, experiment: Experiment) -> None:
    """Cache *experiment* for the nodes of this process.

    Replace a cached one with the same configuration, since the user's code may have changed.
    """
    _known.pop(config_json, None)
    _known[config_json] = experiment
    if len(_known) > _MOST_KNOWN:
        del _known[next(iter(_known))]


def _experiment(config_json: str) -> Experiment:
    """Return the experiment of *config_json*, which is read once for all nodes of the process."""
    if config_json not in _known:
        document = json.loads(config_json)
        remember(config_json, read_experiment(document, resumes=document.pop(RESUMES, False)))
    return _known[config_json]
