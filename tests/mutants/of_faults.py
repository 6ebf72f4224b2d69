"""Defects of fault handling: lost wake-ups, double counts, stale incarnations, wrong divisors, and more.

A text that is found no more, or more than once, is an error: then the library has changed, and the defect must follow.
"""

from __future__ import annotations

from tests.mutants.planted import plant

SIM, CHECKPOINTS = "simcluster_backends/sim/", "simcluster/checkpoints/"
CLUSTER, FAULTS, INBOX = SIM + "cluster.py", SIM + "faults.py", "simcluster_backends/common/inbox.py"
SERVING, RECORD = "simcluster/algorithms/parameter_server/serving.py", "simcluster/runs/record.py"
LEDGER = "simcluster/workloads/ledger.py"
REFORMING = ("all_reduce_dp", "local_sgd", "diloco", "streaming_diloco", "sparta", "demo")
SERVED = ("sync_ps", "k_sync", "ssp", "softsync", "k_async", "edp", "easgd", "fedbuff", "async_diloco")
LOSSES = ("crash", "restart", "join", "leave", "hang", "cut", "partition", "flap")
ROUNDS = ("d_psgd", "sgp", "gradient_tracking", "choco_sgd")

IN_THE_SIMULATOR = [
    plant(
        1,
        "lost wake-up: the news of an end reaches all who wait but the first",
        CLUSTER,
        "for peer in self.living():\n            peer.expect_news_of",
        "for peer in self.living()[1:]:\n            peer.expect_news_of",
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
        "lost messages: of what a cut held up only the first arrives",
        SIM + "transit.py",
        "for message in held:\n            self._clock",
        "for message in held[:1]:\n            self._clock",
        kinds=("cut", "flap", "partition"),
    ),
    plant(
        5,
        "lost wake-up: what a node was about to do when it hung is forgotten",
        SIM + "loop/suspended.py",
        "self._ready.extend(self._held.pop(owner, ()))",
        "self._held.pop(owner, ())",
        kinds=("hang",),
    ),
    plant(
        6,
        "a node that hangs is never given up",
        FAULTS,
        "cluster.crash(fault.rank, hung(self._dead_s), fault)",
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
        "            self._untold.append(rank)\n        self._tell_any()",
        "            self._untold.append(rank)",
        kinds=LOSSES,
        algorithms=SERVED,
    ),
    plant(
        12,
        "zombie: a crashed node keeps running",
        CLUSTER,
        "        for task in self._tasks_of(member):\n            task.cancel()\n        self.loop.frozen",
        "        self.loop.frozen",
        kinds=("crash", "restart"),
    ),
]

AT_SERVERS = [
    plant(
        13,
        "wrong divisor: a sum of fewer gradients is divided by how many workers there were",
        "simcluster/algorithms/parameter_server/sync_ps.py",
        "        await node.compute(replica.apply, total, cost=replica.apply_cost())\n",
        "        share = len(gradients) / needed\n"
        "        total = [tensor * share for tensor in total]\n"
        "        await node.compute(replica.apply, total, cost=replica.apply_cost())\n",
        algorithms=("sync_ps",),
        kinds=LOSSES,
        needs=("slope",),
    ),
    plant(
        14,
        "wrong divisor: a batch of K gradients is divided by K, though fewer came",
        "simcluster/algorithms/parameter_server/k_sync.py",
        "mean([push.tensors for push in first])",
        "[t * (len(first) / k) for t in mean([push.tensors for push in first])]",
        algorithms=("k_sync",),
        kinds=LOSSES,
        needs=("slope",),
    ),
    plant(
        15,
        "the clock of a lost worker holds all others up",
        "simcluster/algorithms/clocks.py",
        "            del self._clock[rank]\n            self._waiting.pop(rank, None)\n",
        "            self._waiting.pop(rank, None)\n",
        algorithms=("ssp",),
        kinds=LOSSES,
    ),
    plant(
        19,
        "a bound on staleness that lets one more through",
        "simcluster/algorithms/parameter_server/edp.py",
        "staleness > max_staleness:",
        "staleness > max_staleness + 1:",
        algorithms=("edp",),
    ),
]

AT_SERVERS += [
    plant(
        16,
        "a server waits for pushes of a worker that is lost",
        SERVING,
        "if rank in there and rank != loss.rank}",
        "}",
        algorithms=("edp", "k_async", "softsync"),
        kinds=LOSSES,
    ),
    plant(
        18,
        "a server waits for the rounds of a worker that is lost",
        SERVING,
        "self._training.intersection_update(self._node.peers)",
        "pass",
        algorithms=("easgd", "fedbuff", "async_diloco"),
        kinds=LOSSES,
    ),
    plant(
        20,
        "a push that a server takes is not counted: double count of what was lost",
        LEDGER,
        "                runs.append([number, 1])\n",
        "                runs.append([number + 1, 1])\n",
        algorithms=SERVED,
        kinds=LOSSES,
    ),
]

AMONG_NEIGHBOURS = [
    plant(
        22,
        "the weight of a lost neighbour is dropped: weights sum to less than 1",
        "simcluster/overlays/neighbourhood.py",
        "        return self.graph.weights(me, number, absent)\n",
        "        return {rank: w for rank, w in self.graph.weights(me, number).items() if rank not in absent}\n",
        algorithms=("d_psgd",),
        kinds=LOSSES,
        needs=("slope",),
    ),
    plant(
        23,
        "a neighbour that is lost ends a round for all others",
        "simcluster/overlays/gossip.py",
        "        except PeerLost as lost:\n            done.losses[peer] = lost\n\n",
        "        except ZeroDivisionError as lost:\n            done.losses[peer] = lost\n\n",
        algorithms=ROUNDS,
        kinds=LOSSES,
    ),
]

IN_GROUPS = [
    plant(
        25,
        "a group that is formed again continues from the step before the one agreed on",
        "simcluster/regroup/memory.py",
        "    replica.done = replica.at = batches",
        "    replica.done = replica.at = max(batches - 1, 0)",
        algorithms=REFORMING,
        kinds=LOSSES,
    ),
    plant(
        26,
        "a group is formed without what its algorithm had kept",
        "simcluster/regroup/memory.py",
        '        replica.kept.update(state["kept"])\n',
        "",
        algorithms=("diloco", "streaming_diloco", "demo"),
        kinds=LOSSES,
        needs=("slope",),
    ),
    plant(
        27,
        "what a rank had in its hands when its group ended is forgotten",
        LEDGER,
        "own = before.notes(in_hand=True)",
        "own = before.notes()",
        algorithms=REFORMING,
        kinds=LOSSES,
    ),
    plant(
        28,
        "early answer: the leader decides before all members have answered",
        "simcluster/regroup/agreement.py",
        "all(self.facts.life(rank) in self._answers for rank in others)",
        "any(self.facts.life(rank) in self._answers for rank in others) or not others",
        algorithms=REFORMING,
        kinds=LOSSES,
    ),
    plant(
        29,
        "a rank that asks to be let in waits until its group ends for another reason",
        "simcluster/regroup/agreement.py",
        "if (self._leads or source in self.members) and not self.is_done:",
        "if source in self.members and not self.is_done:",
        algorithms=REFORMING,
        kinds=("restart", "join"),
    ),
]

IN_CHECKPOINTS = [
    plant(
        30,
        "content is renamed before it is on the disk",
        "simcluster/paths/inside.py",
        "            os.fsync(number)\n",
        "",
        needs=("checkpoint",),
    ),
    plant(
        31,
        "a manifest is named before the names that it needs are on the disk",
        CHECKPOINTS + "store.py",
        "            sync(shards)\n",
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
        "what no checkpoint needs is left behind",
        CHECKPOINTS + "store.py",
        "                if unused or _HALF.fullmatch(name):",
        "                if _HALF.fullmatch(name):",
        needs=("checkpoint",),
    ),
    plant(
        34,
        "what an algorithm had kept is not restored",
        CHECKPOINTS + "shard.py",
        "    replica.kept.update(algorithm)\n",
        "",
        kinds=LOSSES,
        needs=("checkpoint",),
    ),
    plant(
        35,
        "double count: a restored rank takes its last batch again",
        CHECKPOINTS + "shard.py",
        "= shard.batches, shard.step, list",
        "= max(shard.batches - 1, 0), shard.step, list",
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
        "faults that have happened happen again when the run begins again",
        "simcluster/experiment/restarts.py",
        "faults=faults_to_come(first.faults, later_s, self._happened_s - self._first_began_s),",
        "faults=first.faults,",
        kinds=LOSSES,
        was_there=True,
    ),
    plant(
        42,
        "faults that have happened happen again when a run is resumed",
        "simcluster/experiment/run.py",
        "faults=faults_to_come(plan.faults, keeping.began_s, happened_s),",
        "faults=faults_to_come(plan.faults, keeping.began_s, None),",
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
        "[node for node in well if node.trained or not node.incarnation]",
        "well",
        kinds=("join", "restart"),
        was_there=True,
    ),
    plant(
        46,
        "what has come to a server counts as used, whether it is applied or not",
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
        "simcluster/experiment/part.py",
        "    losing = [fault for fault in faults if may_lose(fault)]\n",
        "    if rank:\n        return False\n    losing = [fault for fault in faults if may_lose(fault)]\n",
        kinds=LOSSES,
        was_there=True,
    ),
    plant(
        54,
        "a run whose every node died is done",
        "simcluster/experiment/restarts.py",
        "is_left = last(record.nodes) if",
        "is_left = record.nodes if",
        kinds=LOSSES,
        was_there=True,
    ),
    plant(
        60,
        "a node that comes when all others have ended fails the run",
        "simcluster_backends/common/attribution.py",
        "        return too_late(report.absence)",
        "        return str(report.lost) if report.is_cut else None",
        kinds=("restart", "join"),
        was_there=True,
    ),
]

PLANTED = [*IN_THE_SIMULATOR, *AT_SERVERS, *AMONG_NEIGHBOURS, *IN_GROUPS, *IN_CHECKPOINTS, *ONCE_THERE]
