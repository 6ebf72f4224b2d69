"""Defects of surviving losses: at servers, among neighbours, and in groups that re-form."""

from __future__ import annotations

from tools.mutants.planted import plant

SERVING = "simcluster/algorithms/parameter_server/serving.py"
LEDGER = "simcluster/workloads/progress/ledger.py"
REFORMING = ("all_reduce_dp", "local_sgd", "diloco", "streaming_diloco", "sparta", "demo")
SERVED = ("sync_ps", "k_sync", "ssp", "softsync", "k_async", "edp", "easgd", "fedbuff", "async_diloco")
LOSSES = ("crash", "restart", "join", "leave", "hang", "cut", "partition", "flap")
ROUNDS = ("d_psgd", "sgp", "gradient_tracking", "choco_sgd")

AT_SERVERS = [
    plant(
        13,
        "wrong divisor: a sum of fewer gradients is divided by the original number of workers",
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
        "mean([push.tensors for push in first], server.samples(first))",
        "[t * (len(first) / needed) for t in mean([push.tensors for push in first], server.samples(first))]",
        algorithms=("k_sync",),
        kinds=LOSSES,
        needs=("slope",),
    ),
    plant(
        15,
        "the clock of a lost worker holds all others up",
        SERVING,
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
        "simcluster/overlays/neighbourhood.py",
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
        "simcluster/regroup/capture_memory.py",
        "    replica.done = replica.at = batches",
        "    replica.done = replica.at = max(batches - 1, 0)",
        algorithms=REFORMING,
        kinds=LOSSES,
    ),
    plant(
        26,
        "a group is formed without what its algorithm had kept",
        "simcluster/regroup/capture_memory.py",
        '        replica.kept.update(moved(state["kept"], replica.device))\n',
        "",
        algorithms=("diloco", "streaming_diloco", "demo"),
        kinds=LOSSES,
        needs=("slope",),
    ),
    plant(
        27,
        "what a rank held when its group ended is forgotten",
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
