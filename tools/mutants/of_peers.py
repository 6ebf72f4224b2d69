"""Defects that other projects have had, as mutants: weights, staleness, order, buffers, draws and schedules."""

from __future__ import annotations

from tools.mutants.places import BARRIER, EDP, GENERATORS, SERVER, STATISTICS
from tools.mutants.trial import Mutant

SEEN_IN_PEERS = [
    Mutant(
        "39", "Metropolis weights whose rows sum to 7/6 on a ring", "simcluster/overlays/overlay.py",
        "row[rank] = 1.0 - sum(row.values())", "row[rank] = 1.0 / 2",
        "d_psgd", "mixing", nodes=(3,),
    ),
    Mutant(
        "42", "staleness counted after the increment", SERVER,
        'max(self._state.version - push["version"], 0)', 'max(self._state.version + 1 - push["version"], 0)',
        "edp", "staleness",
    ),
    Mutant(
        "43", "sums in order of arrival: not reproducible", BARRIER,
        "for rank in sorted(on_time)", "for rank in on_time",
        "sync_ps", "networks", nodes=(4,),
    ),
    Mutant(
        "16", "a batch norm's running statistics stay with each rank: buffers are not averaged", STATISTICS,
        "            self._mean = [each / weight for each in sums]", "            self._mean = None",
        "all_reduce_dp", "statistics",
    ),
    Mutant(
        "16", "a server keeps its own running statistics, whatever its workers send", STATISTICS,
        "            self._base = found\n", "            found = now\n            self._base = found\n",
        "sync_ps", "statistics",
    ),
    Mutant(
        "", "a push counts alike, whatever the size of its batch", SERVER,
        "push = lend(*weighed(replica, gradients), ", "push = lend(*gradients, ", "k_async", "unequal",
    ),
    Mutant(
        "", "all ranks of a process draw from one set of global generators", GENERATORS,
        "if own is None or own is self._installed:", "if own is None or self._installed is not None:",
        "all_reduce_dp", "draws",
    ),
    Mutant(
        "", "the global generators are in whatever state the process has them", GENERATORS,
        "        self.live += 1\n        _seed(sequence)\n", "        self.live += 1\n",
        "all_reduce_dp", "draws",
    ),
    Mutant(
        "", "every rank draws the same noise", "simcluster/experiment/node.py",
        'seed_sequence(experiment.seed, "global", node.name,', 'seed_sequence(experiment.seed, "global",',
        "all_reduce_dp", "draws",
    ),
    Mutant(
        "", "a schedule restarts when a run resumes", "simcluster/workloads/saved.py",
        '        load_schedule(optimizer, state["schedule"])\n', "        pass\n",
        "all_reduce_dp", "schedule",
    ),
    Mutant(
        "", "a server's schedule counts the batches of all ranks: it is used up after 1/N of the run", EDP,
        "of = len(ranks) if blend_interval is None else 1", "of = 1",
        "edp", "schedule",
    ),
    Mutant(
        "", "a server's schedule counts its updates, however many batches are in them", SERVER,
        "mean(parts), len(pushes), ranks, cost", "mean(parts), cost",
        "k_async", "schedule", {"k": 1},
    ),
]  # fmt: skip
