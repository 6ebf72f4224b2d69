"""The asynchronous parameter server: workers never wait for each other, and the server handles stale gradients.

Downpour SGD (Dean et al. 2012, section 4.1), which SmolCluster calls EDP, elastic distributed parallelism. Staleness is
the number of server updates between a worker's download of the weights and the arrival of the gradient computed from
them (Zhang, Gupta, Lian and Liu 2016, section 2). Rank 0 serves, and also trains by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.parameter_server.asynchronous import PushServer, push_to_server
from simcluster.algorithms.parameter_server.server import SERVER, blended, check_push, damped, trainers
from simcluster.algorithms.parameter_server.server_copies import drawn_by_all, edp_copies, edp_world
from simcluster.algorithms.parameter_server.serving import ExpectedPushes
from simcluster.algorithms.steps import resumable
from simcluster.compression import Codec, Compression
from simcluster.payload import lend, pack
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(
    copies=edp_copies, world=edp_world, exact=never, keeps_shapes=True, spares="workers", evenly=drawn_by_all,
    running="server",
)  # fmt: skip
async def edp(
    node: Transport,
    replica: Replica,
    *,
    pull_interval: PositiveInt = 1,
    max_staleness: NonNegativeInt | None = None,
    damping: Literal["none", "inverse"] = "none",
    push: Literal["gradients", "weights"] = "gradients",
    compression: Compression = "none",
    server_trains: bool = True,
) -> None:
    """Push every batch's gradient; every *pull_interval*-th push asks for the server's weights.

    Between pulls a worker takes local steps. *max_staleness*: the server rejects pushes with a
    larger staleness; None accepts all. *damping*: `inverse` divides a gradient by its staleness if
    that is above 1 (Zhang et al. 2016, section 3). *push*: `weights` is SmolCluster's blend: after
    *pull_interval* local steps a worker pushes its weights, the server blends them into its own
    with the share 1 / (1 + staleness), and the worker pulls the result. *compression*: the
    compression of pushed gradients. *server_trains*: whether the server also trains. Ranks survive
    the loss of a worker, which may rejoin before the others end.
    """
    ranks = trainers(node.size, server_trains)
    check_push(push, compression)
    codec = Codec(compression, node.rng, "push", replica.parameters)
    if node.rank != SERVER:
        await _work(node, replica, codec, pull_interval, push == "weights")
        return
    blend_interval = pull_interval if push == "weights" else None
    await _serve(node, replica, codec, max_staleness, damping, blend_interval, ranks)


async def _serve(
    node: Transport, replica: Replica, codec: Codec, max_staleness: int | None, damping: str,
    blend_interval: int | None, ranks: Sequence[int],
) -> None:  # fmt: skip
    """Run the server.

    *blend_interval*: the number of steps between two pushes of weights; None if workers push
    gradients.
    """
    state = resumable(replica, version=0, applied=0, rejected=0)
    expected = ExpectedPushes(node, replica, ranks, batches=blend_interval or 1)

    async with PushServer(node, replica, expected, "weights", keep=state) as server:
        if SERVER in ranks:
            server.train(server.gradients(records=False))
        async for push in server.pushes():
            # Push: apply pushes in order of arrival, hence asynchronously.
            own: int = push["pushed"] if push.rank == SERVER else 0
            tensors = push.tensors if own else await codec.restore(node, push.tensors)
            staleness, counts = server.staleness(push), {"pushed": own} if own else {}
            if max_staleness is not None and staleness > max_staleness:
                server.reject(push, **counts)
            else:
                if blend_interval is not None and not own:
                    await node.compute(_blend, replica, tensors, 1 / (1 + staleness), cost=replica.apply_cost())
                else:
                    tensors = damped(tensors, staleness) if damping == "inverse" else tensors
                    of = len(ranks) if blend_interval is None else 1  # one push of each is a step of a schedule
                    await node.compute(replica.apply, tensors, 1, of, cost=replica.apply_cost())
                # The server's own training counts as one worker: it advances the version once per
                # push interval.
                is_version = blend_interval is None or not own or own % blend_interval == 0
                server.count([push], versions=int(is_version), **counts)

            # Pull: send the current weights while the next push is handled.
            if push["pull"]:
                server.send_weights(push)
            await server.keep((state.version + state.rejected) * (blend_interval or 1) // len(ranks))


async def _work(node: Transport, replica: Replica, codec: Codec, pull_interval: int, blend: bool) -> None:
    version, pushed, codec = replica.restored(version=0, pushed=0, codec=codec)
    for step, batch in enumerate(replica.batches(), start=1 + replica.done):
        pull = step % pull_interval == 0 or (blend and step == replica.steps)
        push = pull or not blend
        pushed += push
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        gradients = weighed(replica, gradients)
        node.record(step=step, loss=loss, pushed=pushed)
        if blend:
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())

        # Phase 2, push: the gradient or the weights, and the version of the weights that they started from.
        message = None
        if push:
            small = await codec.compress(node, replica.parameters if blend else gradients)
            result = (pack if blend else lend)(*small, version=version, loss=loss, pull=pull)
            message = await push_to_server(node, replica, result, "weights" if pull else None)

        # Phase 3, pull, or continue alone until the next pull.
        if message is not None:
            replica.load(message.tensors)
            version = message["version"]
        elif not blend:
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        if push:  # local steps between pushes of weights are saved with the push
            await replica.checkpoint(step, loose=True, version=version, pushed=pushed, codec=codec)


def _blend(replica: Replica, weights: Sequence[Tensor], share: float) -> None:
    replica.load(blended(replica.parameters, weights, share))
