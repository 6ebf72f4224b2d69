"""FedBuff: workers train without waiting for each other; the server steps whenever K of their changes have arrived.

Nguyen et al. 2022, algorithm 1, without secure aggregation. Staleness is the number of server steps
between a worker's download and the arrival of its change; changes are scaled by 1 / sqrt(1 +
staleness). Rank 0 serves, and also trains by default. As in the paper, only M_c workers may train
at a time: for each worker that finishes, the server draws another.
"""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.local_steps.cohort import CALL, Cohort, work_when_called
from simcluster.algorithms.local_steps.local_step_copies import fedbuff_copies, fedbuff_working
from simcluster.algorithms.local_steps.own_rounds import own_rounds, train_and_push
from simcluster.algorithms.local_steps.rounds import adopt
from simcluster.algorithms.parameter_server.asynchronous import PushServer
from simcluster.algorithms.parameter_server.server import SERVER, Push, trainers
from simcluster.algorithms.parameter_server.server_copies import drawn_by_all, served
from simcluster.algorithms.parameter_server.serving import PushRounds
from simcluster.algorithms.steps import resumable, rounds
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, unflatten
from simcluster.compression import Codec, Compression
from simcluster.payload import lend
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(
    copies=fedbuff_copies, world=served(), exact=never, spares="workers", evenly=drawn_by_all,
    rests=lambda settings: settings.get("concurrency") is not None, working=fedbuff_working, keeps_shapes=True,
    running="server",
)  # fmt: skip
async def fedbuff(
    node: Transport,
    replica: Replica,
    *,
    interval: PositiveInt = 10,
    buffer: PositiveInt = 2,
    server_learning_rate: PositiveFloat = 1.0,
    damping: Literal["none", "root"] = "root",
    max_staleness: NonNegativeInt | None = None,
    compression: Compression = "none",
    server_trains: bool = True,
    concurrency: PositiveInt | None = None,
) -> None:
    """Run rounds of *interval* steps (Q) on each rank, and a server step per *buffer* changes (K).

    *server_learning_rate*: eta_g. *damping*: `root` divides a change by sqrt(1 + staleness).
    *max_staleness*: the server rejects changes with a larger staleness; None accepts all.
    *compression*: the compression of the changes that workers send. *server_trains*: whether the
    server also trains. *concurrency* (M_c): the number of workers that train at a time; None for
    all. Each of these slots runs as many rounds as a rank has batches for. Each of its rounds goes
    to a worker drawn from those at rest; no worker runs more rounds than it has batches for. The
    changes left at the end make a last, smaller step. Ranks survive the loss of a worker.
    """
    K = min(buffer, len(trainers(node.size, server_trains)))
    codec = Codec(compression, node.rng, "push", replica.parameters)
    if node.rank == SERVER:
        settings = server_learning_rate, damping, max_staleness, codec, server_trains, concurrency
        await _serve(node, replica, interval, K, *settings)
    elif concurrency is None:
        await _work(node, replica, interval, codec)
    else:
        await work_when_called(node, replica, interval, codec)


async def _serve(
    node: Transport, replica: Replica, interval: int, K: int, server_learning_rate: float, damping: str,
    max_staleness: int | None, codec: Codec, server_trains: bool, concurrency: int | None,
) -> None:  # fmt: skip
    w = flatten(replica.parameters)
    zeros = w.new_zeros(len(w))  # shared by all empty buffers, so nothing may change it in place
    state = resumable(replica, w=w, gathered=zeros, version=0, held=0, applied=0, rejected=0, came=0)
    places = min(concurrency or node.size, node.size - 1)
    cohort = Cohort(node, replica, places, interval, state.came) if concurrency is not None else None

    async def step() -> None:
        """Take the step w <- w - eta_g * (mean of the changes in the buffer)."""
        state.w = await timed(node, _step, state.w, state.gathered, server_learning_rate, state.held)
        server.take()
        state.gathered, state.version = zeros, state.version + 1
        state.applied, state.held = state.applied + state.held, 0
        if not server_trains:
            replica.load(unflatten(state.w, replica.parameters))  # for evaluation only
            server.done = state.version

    def answer(push: Push | None) -> None:
        """Send the current weights to the rank that pushed, or to the next ranks of the cohort."""
        weights = lend(state.w, version=state.version)
        is_own = push is not None and push.rank == SERVER
        if push is not None and (cohort is None or is_own):
            server.answer(push, weights)
        elif cohort is not None:
            server.call(cohort.draw(), CALL, weights)

    listener = PushRounds(node, replica) if cohort is None else cohort
    async with PushServer(node, replica, listener, "answer", keep=state, codec=codec) as server:
        answer(None)
        if server_trains:
            pushed = -(-replica.done // interval)
            server.train(own_rounds(node, replica, server, interval, state.w, state.version, pushed))
        async for push in server.pushes() if cohort is None else server.news():
            if push is None:
                answer(None)  # a rank is lost or has joined
                continue
            state.came += push.rank != SERVER

            # Phase 1, gather, in order of arrival: scale and add a change unless it is too stale.
            staleness = server.staleness(push)
            if max_staleness is not None and staleness > max_staleness:
                state.rejected += 1
            else:
                scale = (1 + staleness if damping == "root" else 1) ** -0.5
                state.gathered = await timed(node, _gather, state.gathered, flatten(push.tensors), scale)
                state.held += 1
                server.hold(push)
                # Phase 2, step: once K changes have arrived.
                if state.held == K:
                    await step()
            node.record(step=server.done, staleness=staleness, applied=state.applied, rejected=state.rejected)

            # Phase 3, pull: the current weights.
            answer(push)
            if not server_trains:
                changes = state.applied + state.held + state.rejected
                await server.keep(changes * interval // places, batches=server.done)
    if state.held:
        await step()
    await timed(node, adopt, replica.parameters, state.w)
    node.record(step=server.done, applied=state.applied)


async def _work(node: Transport, replica: Replica, interval: int, codec: Codec) -> None:
    state = resumable(replica, w=flatten(replica.parameters), version=0, codec=codec)
    async for done, batches in rounds(replica, interval, keep=state, loose=True):
        await train_and_push(node, replica, interval, done, batches, state.w, state.version, codec)

        # Phase 3, pull: the current weights.
        message = await node.recv(SERVER, "answer")
        state.w, state.version = message.tensor, message["version"]
        await timed(node, adopt, replica.parameters, state.w)


def _gather(gathered: Tensor, delta: Tensor, scale: float) -> Tensor:
    return gathered + delta.mul(scale)


def _step(w: Tensor, gathered: Tensor, eta: float, number: int) -> Tensor:
    return w - eta * gathered / number
