"""Defects of fault handling: lost wake-ups, double counts, stale incarnations, and more.

If a quoted text does not occur exactly once in its file, the trial fails: the library has changed,
and the defect must be adapted.
"""

from __future__ import annotations

from tools.mutants.of_survivors import AMONG_NEIGHBOURS, AT_SERVERS, IN_GROUPS, LEDGER, LOSSES, ROUNDS, SERVED
from tools.mutants.planted import plant

SIM, CHECKPOINTS = "backends/simcluster_backends/sim/", "simcluster/checkpoints/"
CLUSTER = SIM + "cluster.py"
FAULTS = SIM + "faults.py"
INBOX = "backends/simcluster_backends/common/inbox.py"
RECORD = "simcluster/runs/record.py"

IN_THE_SIMULATOR = [
    plant(
        1,
        "lost wake-up: all waiting tasks but the first learn of an end",
        CLUSTER,
        "| self.membership.listeners(member.rank, any_too)):\n            peer.expect_news_of",
        "| self.membership.listeners(member.rank, any_too))[1:]:\n            peer.expect_news_of",
        kinds=LOSSES,
    ),
    plant(
        2,
        "stale incarnation: what a node sent before its restart arrives as the new one's",
        SIM + "streams.py",
        "for key in [key for key in self._streams if rank in key]:",
        "for key in [key for key in self._streams if rank == key[1]]:",
        kinds=("restart",),
    ),
    plant(
        4,
        "lost messages: only the first message that a cut held up arrives",
        SIM + "transit.py",
        "for message in held:\n            self.clock",
        "for message in held[:1]:\n            self.clock",
        kinds=("cut", "flap", "partition"),
    ),
    plant(
        5,
        "lost wake-up: what a node was about to do when it hung is forgotten",
        SIM + "loop/callbacks.py",
        "self._ready.extend(self.held.pop(owner, ()))",
        "self.held.pop(owner, ())",
        kinds=("hang",),
    ),
    plant(
        6,
        "a node that hangs is never dropped",
        FAULTS,
        "cluster.crash(fault.rank, kinds.hung(self._dead_s, fault.author), fault)",
        "pass",
        kinds=("hang",),
    ),
    plant(
        7,
        "a cut ends for one way only",
        FAULTS,
        "for stream in self._cuts.pop(number)[1]:",
        "for stream in self._cuts.pop(number)[1][:1]:",
        kinds=("cut", "flap", "partition"),
    ),
    plant(
        8,
        "double count: dropped bytes are counted twice",
        FAULTS,
        "self.log.drops(fault, size_bytes)",
        "self.log.drops(fault, 2 * size_bytes)",
        kinds=("restart", "crash", "hang", "cut", "partition"),
    ),
    plant(
        9,
        "bytes that a fault drops are counted nowhere",
        SIM + "transit.py",
        "        self.dropped_B += message.size_bytes\n",
        "",
        kinds=LOSSES,
    ),
    plant(
        10,
        "two nodes that are cut off from each other wait for ever",
        FAULTS,
        "            cluster.membership.severs(",
        "            _ = (",
        kinds=("cut", "partition"),
    ),
    plant(
        11,
        "lost wake-up: a receive from any rank is not notified of a loss",
        INBOX,
        "            self._untold.append((rank, self.mailbox.arrivals))\n        self._tell_any()",
        "            self._untold.append((rank, self.mailbox.arrivals))",
        kinds=LOSSES,
        algorithms=SERVED,
    ),
    plant(
        12,
        "zombie: a crashed node keeps running",
        CLUSTER,
        "        self._cancel(member)\n        self.loop.frozen",
        "        self.loop.frozen",
        kinds=("crash", "restart"),
    ),
]

IN_CHECKPOINTS = [
    plant(
        30,
        "content is renamed before it is on the disk",
        "simcluster/paths/inside.py",
        "            if durable:\n                os.fsync(number)\n",
        "",
        needs=("checkpoint",),
    ),
    plant(
        31,
        "a manifest is named before the names that it needs are on the disk",
        CHECKPOINTS + "store.py",
        "            os.fsync(shards)\n",
        "            pass\n",
        needs=("checkpoint",),
    ),
    plant(
        32,
        "one checkpoint more than asked for is kept",
        CHECKPOINTS + "store.py",
        "ours[-self._keep :]",
        "ours[-self._keep - 1 :]",
        needs=("checkpoint",),
    ),
    plant(
        33,
        "files that no checkpoint needs are left behind",
        CHECKPOINTS + "store.py",
        "                if unused or _HALF.fullmatch(name):",
        "                if _HALF.fullmatch(name):",
        needs=("checkpoint",),
    ),
    plant(
        34,
        "what an algorithm had kept is not restored",
        CHECKPOINTS + "shard.py",
        "    replica.kept.update(moved(algorithm, replica.device))\n",
        "",
        kinds=LOSSES,
        needs=("checkpoint",),
    ),
    plant(
        35,
        "double count: a restored rank takes its last batch again",
        CHECKPOINTS + "shard.py",
        "replica.done = shard.batches\n",
        "replica.done = max(shard.batches - 1, 0)\n",
        kinds=LOSSES,
        needs=("checkpoint",),
    ),
    plant(
        36,
        "a restored rank forgets what became of its batches",
        CHECKPOINTS + "shard.py",
        "    replica.ledger.load(trees[LEDGER])\n",
        "",
        kinds=LOSSES,
        needs=("checkpoint",),
    ),
]

ONCE_THERE = [
    plant(
        41,
        "past faults happen again after a restart",
        "simcluster/experiment/restarts.py",
        "faults=to_come,",
        "faults=first.faults,",
        kinds=LOSSES,
        was_there=True,
    ),
    plant(
        42,
        "past faults happen again after a resume",
        "simcluster/experiment/execute.py",
        "faults=faults_to_come(plan.faults, keeping.began_s, *past),",
        "faults=faults_to_come(plan.faults, keeping.began_s, None, *past[1:2]),",
        kinds=LOSSES,
        needs=("checkpoint",),
        was_there=True,
    ),
    plant(
        43,
        "the result is that of a rank that died",
        RECORD,
        "if node.ended_well and not node.holds_part]",
        "if not node.holds_part]",
        kinds=LOSSES,
        was_there=True,
    ),
    plant(
        44,
        "the result is that of a rank that never trained",
        RECORD,
        "[node for node in well if (node.trained or not node.incarnation) and not node.began_again]",
        "well",
        kinds=("join", "restart"),
        was_there=True,
    ),
    plant(
        46,
        "what has reached a server counts as used, whether or not it is applied",
        LEDGER,
        "        return self._next(push.source, push.incarnation)",
        "        found = self._next(push.source, push.incarnation)\n        self.take([found])\n        return found",
        algorithms=SERVED,
        was_there=True,
    ),
    plant(
        47,
        "pushes of a worker's two lives are judged as those of one",
        LEDGER,
        "        return self._next(push.source, push.incarnation)",
        "        return self._next(push.source, 0)",
        algorithms=SERVED,
        kinds=("restart", "join"),
        was_there=True,
    ),
    plant(
        49,
        "a rank without a neighbour fails the run",
        "simcluster/overlays/neighbourhood.py",
        "            if lost.reason == ENDED:\n                raise lost",
        "            raise lost",
        algorithms=(*ROUNDS, "ad_psgd"),
        kinds=LOSSES,
        was_there=True,
    ),
    plant(
        50,
        "rank 0 alone is judged, though it may die",
        "simcluster/experiment/node_part.py",
        "    losing = [fault for fault in faults if may_lose(fault)]\n",
        "    if rank:\n        return False\n    losing = [fault for fault in faults if may_lose(fault)]\n",
        kinds=LOSSES,
        was_there=True,
    ),
    plant(
        54,
        "a run in which every node died is done",
        "simcluster/experiment/restarts.py",
        "is_left = last(record.nodes) if",
        "is_left = record.nodes if",
        kinds=LOSSES,
        was_there=True,
    ),
    plant(
        60,
        "a node that comes when all others have ended fails the run",
        "backends/simcluster_backends/common/verdict.py",
        "        return too_late(report.absence)",
        "        return str(report.lost) if report.is_cut else None",
        kinds=("restart", "join"),
        was_there=True,
    ),
]

IN_ODD_CASES = [
    plant(
        61,
        "a global generator that is lent is not given back",
        "simcluster/workloads/global_rng.py",
        "            generator.set_state(before)",
        "            pass",
        needs=("draws",),
    ),
    plant(
        62,
        "a model is evaluated with running means that no batch has changed",
        "simcluster/workloads/evaluation.py",
        "        mine.copy_(given)\n    for own",
        "        pass\n    for own",
        needs=("running mean",),
    ),
    plant(
        63,
        "batch sizes by node are read one larger",
        "simcluster/workloads/workload.py",
        "batch_sizes=tuple(sizes))",
        "batch_sizes=tuple(size + 1 for size in sizes))",
        needs=("sizes",),
    ),
    plant(
        64,
        "a topology in parts is not refused",
        "simcluster/topology/read/read.py",
        "cut = cut_off(workers, [(str(a), str(b)) for a, b in ends], gateways)",
        "cut: list[str] = []",
        needs=("parts",),
    ),
    plant(
        65,
        "buffers are not kept with the final weights",
        "simcluster/workloads/weights.py",
        "others = untrained_state(self._model)\n",
        "others = dict[str, Tensor]()\n",
        needs=("running mean",),
    ),
    plant(
        66,
        "a run begins with the weights of a file, and not with its buffers",
        "simcluster/workloads/initial/given_weights.py",
        "in self.tensors(mine):",
        "in self.tensors(dict(model.named_parameters())):",
        needs=("running mean",),
    ),
]

PLANTED = [*IN_THE_SIMULATOR, *AT_SERVERS, *AMONG_NEIGHBOURS, *IN_GROUPS, *IN_CHECKPOINTS, *ONCE_THERE, *IN_ODD_CASES]
