"""The asynchronous parameter server: nobody waits for anybody, and the server's rules deal with stale gradients.

Downpour SGD (Dean et al. 2012, section 4.1), which SmolCluster calls EDP, elastic distributed parallelism. Staleness
is the number of updates that the server made between a worker's download of the weights and the arrival of the gradient
taken there (Zhang, Gupta, Lian and Liu 2016, section 2). Rank 0 serves, and trains as well unless told not to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.parameter_server.facts import edp_copies, edp_world
from simcluster.algorithms.parameter_server.server import SERVER, Expected, blended, check_push, keep, trainers
from simcluster.compression import Codec, Compression
from simcluster.errors import PeerLost
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Group, Replica


@Facts(copies=edp_copies, world=edp_world, exact=never)
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
    """Every batch is a push; every *pull_interval*-th push asks for the server's weights.

    Between pulls a worker takes its own gradient's step. *max_staleness*: the server rejects what is staler than this;
    None takes all. *damping*: `inverse` divides a gradient by its staleness, if that is above 1 (Zhang et al. 2016,
    section 3). *push*: `weights` is SmolCluster's blend: after *pull_interval* steps of its own a worker pushes its
    weights, of which the server takes the share 1 / (1 + staleness), and pulls what comes of it. *compression* is of
    what is pushed. *server_trains*: false for a server that only serves. A worker that is lost leaves the others to go
    on, and is welcome if it comes back before they end.
    """
    ranks = trainers(node.size, server_trains)
    check_push(push, compression)
    codec = Codec(compression, node.rng, "push", replica.parameters)
    blend_interval = pull_interval if push == "weights" else None
    if node.rank == SERVER:
        await _serve(node, replica, codec, max_staleness, damping, blend_interval, len(ranks))
    else:
        await _work(node, replica, codec, pull_interval, push == "weights")


async def _serve(
    node: Transport, replica: Replica, codec: Codec, max_staleness: int | None, damping: str,
    blend_interval: int | None, ranks: int,
) -> None:  # fmt: skip
    """*blend_interval*: the steps between two pushes of weights; None for gradients. *ranks*: so many train."""
    version, applied, rejected = replica.restored(version=0, applied=0, rejected=0)
    a_push, updating = blend_interval or 1, asyncio.Lock()  # a push is of so many batches

    async def update(tensors: Sequence[Tensor], taken_at: int, loss: float, group: Group, own: int = 0) -> None:
        """One push: judged, applied to the newest weights, recorded. *own* counts the server's gradients."""
        nonlocal version, applied, rejected
        staleness = max(version - taken_at, 0)  # below 0 only of a worker that was kept later than the server
        pushed = {"pushed": own} if own else {}
        if max_staleness is not None and staleness > max_staleness:
            rejected += 1
            node.record(step=version, staleness=staleness, rejected=rejected, **pushed)
            return
        if blend_interval is not None and not own:
            await node.compute(_blend, replica, tensors, 1 / (1 + staleness), cost=replica.apply_cost())
        else:
            if damping == "inverse" and staleness > 1:
                tensors = [gradient / staleness for gradient in tensors]
            await node.compute(replica.apply, tensors, cost=replica.apply_cost())
        replica.ledger.take([group])
        applied += 1
        # As many steps of its own as are between a worker's pushes make the server one of equals: one version.
        if blend_interval is None or not own or own % blend_interval == 0:
            version += 1
        node.record(step=version, loss=loss, staleness=staleness, applied=applied, **pushed)

    async def keep_all() -> None:
        await keep(replica, (version + rejected) * a_push, ranks, version=version, applied=applied, rejected=rejected)

    async def train() -> None:
        """The server's own gradients go through the same rules as everyone's."""
        for own, batch in enumerate(replica.batches(), start=1 + replica.done):
            taken_at = version
            loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
            async with updating:
                await update(gradients, taken_at, loss, replica.ledger.hand_in(own), own)
                await keep_all()
            expected.look()

    pushes = -(-replica.steps // a_push)
    left = {rank: pushes - -(-replica.done_by(rank) // a_push) for rank in range(node.size) if rank != SERVER}
    expected = Expected(node, left, pushes)
    async with asyncio.TaskGroup() as tasks:
        if ranks == node.size:
            expected.train(tasks, train())
        while (push := await expected.next()) is not None:
            # Push: in order of arrival, which is what asynchronous means.
            if isinstance(push, PeerLost):
                expected.lost(push)
                continue
            async with updating:
                tensors = await codec.restore(node, push.tensors)
                await update(tensors, push["version"], push["loss"], replica.ledger.receive(push))
                # Pull: the weights as they are now, sent while the next push is judged.
                if push["pull"]:
                    weights = pack(*replica.snapshot(), version=version)
                    tasks.create_task(expected.reply(push.source, "weights", weights))
                await keep_all()
            expected.came(push.source)


async def _work(node: Transport, replica: Replica, codec: Codec, pull_interval: int, blend: bool) -> None:
    version, pushed, codec = replica.restored(version=0, pushed=0, codec=codec)
    for step, batch in enumerate(replica.batches(), start=1 + replica.done):
        pull = step % pull_interval == 0 or (blend and step == replica.steps)
        push = pull or not blend
        pushed += push
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        node.record(step=step, loss=loss, pushed=pushed)
        if blend:
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())

        # Phase 2, push: the gradient, or the weights, and the version of the weights that it was taken at.
        if push:
            replica.ledger.hand_in(step)
            small = await codec.compress(node, replica.parameters if blend else gradients)
            await node.send(SERVER, "push", pack(*small, version=version, loss=loss, pull=pull))

        # Phase 3, pull, or go on alone until the next pull.
        if pull:
            message = await node.recv(SERVER, "weights")
            replica.load(message.tensors)
            version = message["version"]
        elif not blend:
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        if push:  # steps of its own between pushes of weights go with the push
            await replica.checkpoint(step, loose=True, version=version, pushed=pushed, codec=codec)


def _blend(replica: Replica, weights: Sequence[Tensor], share: float) -> None:
    replica.load(blended(replica.parameters, weights, share))
