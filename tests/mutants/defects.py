"""The defects, as mutants: those of wrong arithmetic, of knobs that do nothing, of barriers, ranks and data.

This file knows texts of the library. It must not know how a mutant is tried. A text that is found no more, or more than
once, is an error: then the library has changed, and the mutant must follow.
"""

from __future__ import annotations

from tests.mutants.trial import Mutant

SYNC_PS = "simcluster/algorithms/sync_ps.py"
EDP = "simcluster/algorithms/edp.py"
DP = "simcluster/algorithms/all_reduce_dp.py"
RING = "simcluster/collectives/ring.py"
NAIVE = "simcluster/collectives/naive.py"
WORKLOAD = "simcluster/workloads/workload.py"

ARITHMETIC = [
    Mutant(
        "1", "no common seed and no broadcast: gradients are averaged that were taken at different points", WORKLOAD,
        "make_model=lambda: self._initial_model(seed),", "make_model=lambda: self._initial_model(seed + rank),",
        "all_reduce_dp", "agree",
    ),
    Mutant(
        "5", "the server's optimizer steps twice a batch", SYNC_PS,
        "            await node.compute(replica.apply, mean, cost=replica.apply_cost())\n",
        "            await node.compute(replica.apply, mean, cost=replica.apply_cost())\n"
        "            await node.compute(replica.apply, mean, cost=replica.apply_cost())\n",
        "sync_ps", "one process",
    ),
    Mutant(
        "5", "the asynchronous server's optimizer steps twice a push", EDP,
        "        await node.compute(replica.apply, gradients, cost=replica.apply_cost())\n        version += 1\n",
        "        await node.compute(replica.apply, gradients, cost=replica.apply_cost())\n"
        "        await node.compute(replica.apply, gradients, cost=replica.apply_cost())\n        version += 1\n",
        "edp", "alone",
    ),
    Mutant(
        "8", "a clipping key that nobody reads", "simcluster/workloads/steps.py",
        "    if clip_norm is not None:\n        gradients = _clip(gradients, clip_norm)\n", "",
        "all_reduce_dp", "clipping",
    ),
    Mutant(
        "8", "gradients are clipped after the optimizer has taken its step", "simcluster/workloads/steps.py",
        "    optimizer.step()\n", "    optimizer.step()\n    gradients = _clip(gradients, clip_norm or 1.0)\n",
        "all_reduce_dp", "clipping",
    ),
    Mutant(
        "9", "the sum of gradients where the mean was meant", DP,
        "total.div_(node.size)", "total",
        "all_reduce_dp", "one process",
    ),
    Mutant(
        "9", "the step goes ahead when 75 % have arrived, and divides by how many those happen to be", SYNC_PS,
        "while len(on_time) < len(workers):", "while len(on_time) < 0.75 * len(workers):",
        "sync_ps", "one process", nodes=(7,),
    ),
    Mutant(
        "10", "all-reduce as x times the world size", NAIVE,
        "    for part in parts[1:]:\n        result.add_(part)\n    return result",
        "    return vector * node.size",
        "all_reduce_dp", "one process", {"schedule": "naive"},
    ),
    Mutant(
        "10", "an all-gather that invents the others' chunks", RING,
        "        incoming.copy_(message.tensor)\n    return result", "    return result",
        "all_reduce_dp", "one process",
    ),
    Mutant(
        "10", "a reduce-scatter that returns the caller's own chunk", RING,
        "        incoming.copy_(message.tensor.add_(incoming))\n", "",
        "all_reduce_dp", "one process",
    ),
    Mutant(
        "11", "weights that could not be fetched are replaced by zeros", EDP,
        '            message = await node.recv(SERVER, "weights")\n            replica.load(message.tensors)\n',
        '            try:\n                message = await node.recv(SERVER, "weights")\n            except PeerLost:\n'
        "                replica.load([0 * tensor for tensor in replica.parameters])\n                continue\n"
        "            replica.load(message.tensors)\n",
        "edp", "faults",
    ),
    Mutant(
        "14", "a Polyak step towards weights sent before the server's own step", SYNC_PS,
        "            await node.compute(replica.apply, mean, cost=replica.apply_cost())\n\n"
        "            # Phase 4, reply to those that waited: with weights, if this is a step to pull on.\n"
        "            reply = pack(*(replica.snapshot() if step % pull_interval == 0 else ()), step=step + 1)\n",
        "            reply = pack(*(replica.snapshot() if step % pull_interval == 0 else ()), step=step + 1)\n"
        "            await node.compute(replica.apply, mean, cost=replica.apply_cost())\n",
        "sync_ps", "one process", {"polyak": 0.5},
    ),
    Mutant(
        "16", "no gradient is exchanged: the cluster's accuracy is rank 0's private model's", DP,
        'total = await all_reduce(node, flatten(gradients), f"gradients/{step}")',
        "total = flatten(gradients) * node.size",
        "all_reduce_dp", "one process",
    ),
]  # fmt: skip

KNOBS = [
    Mutant(
        "17", "a time-out that nothing waits by", SYNC_PS,
        "asyncio.timeout(timeout_s)", "asyncio.timeout(None)",
        "sync_ps", "settings",
    ),
    Mutant(
        "17", "an update interval that nobody reads", SYNC_PS,
        "replica.snapshot() if step % pull_interval == 0 else ()", "replica.snapshot()",
        "sync_ps", "settings",
    ),
    Mutant(
        "18", "a bound on staleness below which nothing is ever turned away", EDP,
        "staleness > max_staleness:", "staleness > max_staleness + 10**9:",
        "edp", "settings",
    ),
    Mutant(
        "19", "a setting that is a placeholder", DP,
        'if initial_weights == "broadcast":', 'if initial_weights == "never":',
        "all_reduce_dp", "settings",
    ),
]  # fmt: skip

RANKS_AND_DATA = [
    Mutant(
        "21", "a barrier that counts the leader: one worker is always left out", SYNC_PS,
        "while len(on_time) < len(workers):", "while len(on_time) + 1 < len(workers):",
        "sync_ps", "one process",
    ),
    Mutant(
        "23", "gradients of earlier steps stay in the sum", SYNC_PS,
        "            on_time, late = {}, 0\n", "            late = 0\n",
        "sync_ps", "one process",
    ),
    Mutant(
        "24", "worker ids from 1 for ranks from 0: two nodes share a shard", WORKLOAD,
        "shard=self._dealt(size, seed)[rank],", "shard=self._dealt(size, seed)[max(rank - 1, 0)],",
        "all_reduce_dp", "shards",
    ),
    Mutant(
        "25", "a worker loads the whole set instead of its shard", WORKLOAD,
        "shard=self._dealt(size, seed)[rank],",
        "shard=self._dealt(size if rank == 0 else 1, seed)[0],",
        "all_reduce_dp", "shards",
    ),
    Mutant(
        "26", "as many steps as one's own shard has batches: synchronous algorithms hang at the tail", WORKLOAD,
        "            steps=self._steps(size, steps, epochs),\n            clip_norm",
        "            steps=steps or len(self._dealt(size, seed)[rank]) // self.batch_size,\n            clip_norm",
        "all_reduce_dp", "shards",
    ),
    Mutant(
        "27", "the world is who is alive at this poll: nodes hold different maps", SYNC_PS,
        "while len(on_time) < len(workers):", "while len(on_time) < len(node.peers):",
        "sync_ps", "faults",
    ),
]  # fmt: skip

MUTANTS = [*ARITHMETIC, *KNOBS, *RANKS_AND_DATA]
