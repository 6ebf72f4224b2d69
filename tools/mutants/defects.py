"""The defects, as mutants: wrong arithmetic, ineffective settings, wrong barriers, and more.

If a quoted text does not occur exactly once in its file, the trial fails: the library has changed,
and the mutant must be adapted.
"""

from __future__ import annotations

from tools.mutants.of_experts import OF_EXPERTS
from tools.mutants.of_peers import SEEN_IN_PEERS
from tools.mutants.places import (
    ACCUMULATOR,
    ALGORITHMS,
    BARRIER,
    DP,
    EDP,
    FLUSH,
    INT8,
    NAIVE,
    REDEALT,
    REPLICA,
    RING,
    STEPS,
    SYNC_PS,
    WORKLOAD,
    ZERO_SUMS,
)
from tools.mutants.trial import Mutant

ARITHMETIC = [
    Mutant(
        "1", "no common seed and no broadcast: gradients taken at different points are averaged", WORKLOAD,
        "counter, deferred = self._counter(seed, size, steps), None",
        "counter, deferred = self._counter(seed + rank, size, steps), None",
        "all_reduce_dp", "agree",
    ),
    Mutant(
        "2", "stage 0 that clears only the gradients it owns: others' pile up", ZERO_SUMS,
        '        tag = f"gradients/{step}/{unit}"\n',
        '        tag = f"gradients/{step}/{unit}"\n'
        '        kept: dict[int, Tensor] = self.__dict__.setdefault("kept", {})\n'
        "        vector = kept[unit] = vector + kept.get(unit, 0.0)\n"
        "        kept[unit] = vector.clone()\n"
        "        kept[unit].tensor_split(self._node.size)[self._node.rank].zero_()\n",
        "zero", "one process",
    ),
    Mutant(
        "3", "stage 1 that keeps its own gradient and adds all, its own included: weight 1 + 1/N on itself", ZERO_SUMS,
        "self._add(step, unit, node.rank, parts[node.rank])",
        "self._add(step, unit, node.rank, (1 + node.size) * parts[node.rank])",
        "zero", "one process", {"reduce": "direct"},
    ),
    Mutant(
        "4", "stage 2 in which each layer gets only its owner's gradient, over N", ZERO_SUMS,
        "pack(parts[owner], step=step, unit=unit)", "pack(0 * parts[owner], step=step, unit=unit)",
        "zero", "one process", {"reduce": "direct", "stage": 2},
    ),
    Mutant(
        "5", "the server's optimizer steps twice per batch", SYNC_PS,
        "        await node.compute(replica.apply, total, cost=replica.apply_cost())\n",
        "        await node.compute(replica.apply, total, cost=replica.apply_cost())\n"
        "        await node.compute(replica.apply, total, cost=replica.apply_cost())\n",
        "sync_ps", "one process",
    ),
    Mutant(
        "5", "the asynchronous server's optimizer steps twice per push", EDP,
        "                    await node.compute(replica.apply, tensors, 1, of, cost=replica.apply_cost())\n",
        "                    await node.compute(replica.apply, tensors, 1, of, cost=replica.apply_cost())\n"
        "                    await node.compute(replica.apply, tensors, 1, of, cost=replica.apply_cost())\n",
        "edp", "alone",
    ),
    Mutant(
        "6", "a pipeline's loss is not divided by the number of micro-batches", FLUSH,
        "micros[k], name, 1 / m, sums", "micros[k], name, 1.0, sums",
        "pipeline", "one process",
    ),
    Mutant(
        "7", "what is handed back is detached: layers before it never train", FLUSH,
        "handed = [] if below is None else [below]", "handed = [] if below is None else [0 * below]",
        "pipeline", "one process",
    ),
    Mutant(
        "8", "a clipping key that is never read", STEPS,
        "    if clip_norm is not None:\n        gradients = _clip(gradients, clip_norm)\n", "",
        "all_reduce_dp", "clipping",
    ),
    Mutant(
        "8", "gradients are clipped after the optimizer has taken its step", STEPS,
        "    if clip_norm is not None:\n        gradients = _clip(gradients, clip_norm)\n"
        "    for parameter, gradient in zip(parameters, gradients, strict=True):\n"
        "        parameter.grad = gradient\n    try:\n        optimizer.step()\n",
        "    for parameter, gradient in zip(parameters, gradients, strict=True):\n"
        "        parameter.grad = gradient\n    try:\n        optimizer.step()\n"
        "        if clip_norm is not None:\n            gradients = _clip(gradients, clip_norm)\n",
        "all_reduce_dp", "clipping",
    ),
    Mutant(
        "9", "the sum of gradients where the mean was meant", "simcluster/compression/mean.py",
        "divisor=self._node.size)", "divisor=1)",
        "all_reduce_dp", "one process",
    ),
    Mutant(
        "9", "a step starts when 75 % have arrived, and divides by their number", SYNC_PS,
        "gather(own, needed, ", "gather(own, int(0.75 * needed), ",
        "sync_ps", "one process", nodes=(4,),
    ),
    Mutant(
        "10", "all-reduce as x times the world size", NAIVE,
        "    return summed(await naive_all_gather(node, vector, tag), combine)", "    return vector * node.size",
        "all_reduce_dp", "one process", {"schedule": "naive"},
    ),
    Mutant(
        "9", "sites are averaged unweighted, though they differ in size", "simcluster/collectives/hierarchical.py",
        '    mine = await ring_reduce_scatter(inside, vector, f"{tag}/scatter", combine=combine)\n',
        '    mine = await ring_reduce_scatter(inside, vector, f"{tag}/scatter", combine=combine)\n'
        "    mine = mine * (node.size / (len(sites) * len(site)))\n",
        "all_reduce_dp", "one process", {"schedule": "hierarchical"}, nodes=(3,),
    ),
    Mutant(
        "9", "a maximum that sums", "simcluster/collectives/operators.py",
        '"max": torch.maximum', '"max": torch.add',
        "tools/mutants/scaled.py:scaled", "one process",
    ),
    Mutant(
        "10", "an all-gather that invents the others", NAIVE,
        "    return await naive_all_to_all(node, [tensor] * node.size, tag)", "    return [tensor] * node.size",
        "all_reduce_dp", "one process", {"schedule": "direct"},
    ),
    Mutant(
        "10", "a reduce-scatter that returns the caller's own chunk", RING,
        "self._combine(own, tensor, out=chunk)", "chunk.copy_(own)",
        "all_reduce_dp", "one process",
    ),
    Mutant(
        "11", "weights that could not be fetched are replaced by zeros", EDP,
        '            message = await push_to_server(node, replica, result, "weights" if pull else None)\n',
        "            try:\n"
        '                message = await push_to_server(node, replica, result, "weights" if pull else None)\n'
        "            except Exception:\n"
        "                replica.load([0 * tensor for tensor in replica.parameters])\n                continue\n",
        "edp", "faults",
    ),
    Mutant(
        "12", "int8 whose zero point is clamped, though the range excludes zero", INT8,
        "+ least.unsqueeze(1)).view(-1)", "+ least.clamp(max=0).unsqueeze(1)).view(-1)",
        "all_reduce_dp", "compression",
    ),
    Mutant(
        "13", "master weights that are quantised again at every step: small updates vanish", DP,
        "replica.apply, mean, *(count or [accumulate]), cost=replica.apply_cost())\n",
        "replica.apply, mean, *(count or [accumulate]), cost=replica.apply_cost())\n"
        "        steps = [parameter.abs().max() / 127 for parameter in replica.parameters]\n"
        "        replica.load([(p / s).round() * s for p, s in zip(replica.parameters, steps, strict=True)])\n",
        "all_reduce_dp", "one process",
    ),
    Mutant(
        "14", "a Polyak step towards weights sent before the server's own step", SYNC_PS,
        "pull = replica.snapshot() if step %", "pull = before_it if step %",
        "sync_ps", "one process",
        more=(
            "        await node.compute(replica.apply, total, cost=replica.apply_cost())\n",
            "        before_it = replica.snapshot()\n"
            "        await node.compute(replica.apply, total, cost=replica.apply_cost())\n",
        ),
    ),
    Mutant(
        "15", "a blend by 1 / (1 + staleness) that counts the server's steps, too: a worker counts for nothing",
        EDP, "blend_interval is None or not own or own % blend_interval == 0", "True",
        "edp", "staleness",
    ),
    Mutant(
        "16", "no gradient is exchanged: the cluster's accuracy is rank 0's private model's",
        "simcluster/compression/mean.py",
        "await self._all_reduce(self._node, vector, tag, divisor=self._node.size)",
        "vector",
        "all_reduce_dp", "one process",
    ),
    Mutant(
        "", "FedProx pulls towards the current weights, so not at all", ALGORITHMS + "local_steps/drift.py",
        "changed, self._x,", "changed, flatten(self._replica.parameters),",
        "local_sgd", "one process",
    ),
    Mutant(
        "", "SCAFFOLD with the sign of its correction reversed", ALGORITHMS + "local_steps/drift.py",
        "torch.sub, *self._variates)", "torch.sub, *reversed(self._variates))",
        "local_sgd", "one process",
    ),
]  # fmt: skip

KNOBS = [
    Mutant(
        "17", "a timeout that is never used", SYNC_PS,
        "gather(own, needed, timeout_s)", "gather(own, needed, None)",
        "sync_ps", "settings",
    ),
    Mutant(
        "17", "an update interval that is never read", SYNC_PS,
        "pull = replica.snapshot() if step % pull_interval == 0 else ()", "pull = replica.snapshot()",
        "sync_ps", "settings",
    ),
    Mutant(
        "18", "bounded staleness at which every step still waits for all", DP,
        "Lag(replica, staleness, size", "Lag(replica, 0, size",
        "all_reduce_dp", "one process",
    ),
    Mutant(
        "18", "a bound on staleness that turns nothing away", EDP,
        "staleness > max_staleness:", "staleness > max_staleness + 10**9:",
        "edp", "settings",
    ),
    Mutant(
        "19", "a bucket size that is a placeholder", DP,
        "cut_into_buckets(replica, bucket_bytes)", "cut_into_buckets(replica, None)",
        "all_reduce_dp", "settings",
    ),
    Mutant(
        "19", "accumulation that is a placeholder: no_sync does nothing", DP,
        "replica, batches, buckets", "replica, batches[-1:], buckets",
        "all_reduce_dp", "one process",
    ),
]  # fmt: skip

RANKS_AND_DATA = [
    Mutant(
        "21", "a barrier that counts the leader: one worker is always left out", SYNC_PS,
        "gather(own, needed, ", "gather(own, needed - 1, ",
        "sync_ps", "one process",
    ),
    Mutant(
        "22", "a late gradient opens its slot again, and stays there", ACCUMULATOR,
        "if last is not None and step <= last:", "if last is not None and step < 0:",
        "zero", "sums",
    ),
    Mutant(
        "23", "an accumulator that is never cleared", ACCUMULATOR,
        "        parts = steps.pop(step)\n", "        parts = steps[step]\n",
        "zero", "sums",
        more=("for number, rest in steps.items() if number > step}", "for number, rest in steps.items()}"),
    ),
    Mutant(
        "23", "gradients of earlier steps stay in the sum", BARRIER,
        "on_time = {push.rank: push for push in own}",
        'on_time = self.on_time = getattr(self, "on_time", {}) | {push.rank: push for push in own}',
        "sync_ps", "one process",
    ),
    Mutant(
        "24", "worker ids from 1 for ranks from 0: two nodes share a shard", WORKLOAD,
        "            shards=partial(self.shards, size, seed),\n",
        "            shards=lambda epoch: self.shards(size, seed, epoch)[:1] + self.shards(size, seed, epoch)[:-1],\n",
        "all_reduce_dp", "shards",
    ),
    Mutant(
        "25", "a worker loads the whole set instead of its shard", WORKLOAD,
        "            shards=partial(self.shards, size, seed),\n",
        "            shards=lambda epoch: self.shards(size, seed)[:1] + self.shards(1, seed) * (size - 1),\n",
        "all_reduce_dp", "shards",
    ),
    Mutant(
        "25", "a rank that resumes is dealt the samples of the first epoch again", REPLICA,
        "lambda epoch: shards(epoch)[rank], self._seed",
        "lambda epoch: shards(0 if first else epoch)[rank], self._seed",
        "all_reduce_dp", "shards", workload=REDEALT,
    ),
    Mutant(
        "25", "samples are dealt once although they should be dealt again each epoch", WORKLOAD,
        "epoch = epoch if deals_each_epoch(self.partition) else 0", "epoch = 0",
        "all_reduce_dp", "shards", workload=REDEALT,
    ),
    Mutant(
        "26", "as many steps as the rank's shard has batches: synchronous algorithms hang at the tail", WORKLOAD,
        "            steps=steps,\n            seed",
        "            steps=len(self.shards(size, seed)[rank]) // self.batch_size,\n            seed",
        "all_reduce_dp", "shards",
    ),
    Mutant(
        "27", "the world is the nodes present at this poll: nodes hold different maps", ALGORITHMS + "gossip/d_psgd.py",
        "        async with asyncio.TaskGroup() as group:\n            # Phase 1",
        "        neighbours.graph = overlay_for(overlay, len(node.peers) + 1, node.rng.seed, unbalanced)\n"
        "        async with asyncio.TaskGroup() as group:\n            # Phase 1",
        "d_psgd", "messages", nodes=(7,),
    ),
]  # fmt: skip

MUTANTS = [*ARITHMETIC, *KNOBS, *RANKS_AND_DATA, *SEEN_IN_PEERS, *OF_EXPERTS]

FIRST = list({mutant.check: mutant for mutant in reversed(MUTANTS)}.values())
"""One mutant for each check that fails for any mutant."""
