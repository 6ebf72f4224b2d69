"""Run the algorithm on one node, with its replica and measurements, in one or more groups."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from functools import partial
from typing import Any

import torch

from simcluster.algorithms.by_place import by_place
from simcluster.algorithms.facts import facts_of
from simcluster.checkpoints.keeper import Holder
from simcluster.checkpoints.shard import restore
from simcluster.collectives import share_statistics
from simcluster.compute import HOST, DeviceTransport, StatisticsExchange
from simcluster.errors import ENDED, TIME_IS_UP, PeerLost
from simcluster.experiment.algorithm_watch import AlgorithmWatch
from simcluster.experiment.measurements import Copies, Evaluations, ObservedTransport
from simcluster.experiment.patience import Patience
from simcluster.experiment.read.experiment import Experiment
from simcluster.fault_plans.kinds import Fault, NodeFault, may_lose
from simcluster.overlays.hearing import heard
from simcluster.regroup.capture_memory import Capture, CaptureMemory, put_back
from simcluster.regroup.messages import Decision
from simcluster.regroup.supervisor import Supervisor
from simcluster.runs.doubts import IN_PLACE, OUTSIDE, STALE_STATISTICS
from simcluster.runs.recorder import Recorder, TrainingPace
from simcluster.transport import Transport
from simcluster.workloads import Replica

STATISTICS = "running statistics"
"""The tag of the messages with running statistics that ranks exchange only at the end."""

OBSERVED_RANK = 0
"""The rank in a group that represents the run: the parameter server, or the first of equals."""


class NodePart:
    """One node's replica, with the algorithm, measurements and checkpoints that work on it.

    It runs the algorithm on *node*, with the arithmetic on *device*, and restarts the algorithm
    after each regrouping. If *evaluate*, the replica is evaluated while it represents the run. If
    *whole*, the replica holds the whole model, even if the algorithm needs only a part.
    """

    replica: Replica

    def __init__(
        self, node: Transport, recorder: Recorder, experiment: Experiment, *, evaluate: bool, whole: bool = False,
        device: torch.device = HOST,
    ) -> None:  # fmt: skip
        self._whole = node
        self._recorder = recorder
        self._experiment = experiment
        self._evaluate = evaluate
        self._device = device
        self._in_parts = not whole and in_parts(experiment, node.size)
        self._names = experiment.topology.workers
        # The lower ranks that were absent when this rank began. Real losses are in no fault plan.
        self._late = () if recorder.losses_are_planned else tuple({*range(node.rank)}.difference(node.peers))
        self._began_s = recorder.restored.time_s if recorder.restored is not None else 0.0
        self._may_stand = may_stand(node.rank, experiment.possible_faults, self._late)
        self.evaluations: Evaluations | None = None
        self._copies: Copies | None = None
        self._watch: AlgorithmWatch | None = None
        record = recorder.record
        record.is_through = record.ended_well = False
        record.trained_before = record.trained_before or record.trained
        has_server = facts_of(experiment.algorithm).spares == "workers"
        record.takes_nothing = recorder.incarnation > 0 and (not node.peers or (has_server and node.rank == 0))
        record.trained = recorder.restored is not None
        self._make(node, None)
        self._keep(node, 0)

    @property
    def time_left_s(self) -> float | None:
        """The seconds until the end of a run with a time limit; None for a run without one.

        A node that joins late or rejoins has only the rest of the time.
        """
        if self._experiment.time_s is None:
            return None
        return self._experiment.time_s - self._began_s - (self._recorder.now() if self._recorder.incarnation else 0.0)

    @property
    def stands_for_the_run(self) -> bool:
        """Whether this node represents the run, or may do so later."""
        return self._may_stand or self._node.rank == OBSERVED_RANK

    def run(self) -> Coroutine[Any, Any, None]:
        """Run the algorithm to its end; after a loss, restart it with the remaining ranks."""
        is_late = self._recorder.incarnation and self.time_left_s is not None and self.time_left_s <= 0
        if is_late and len(self._names) > 1:  # all others have ended by now
            other = int(self._whole.rank == 0)
            raise PeerLost(other, self._names[other], TIME_IS_UP)
        if self._can_regroup:
            return Supervisor(self._whole, self._names, self, self._recorder.incarnation).run()
        self._look()
        return self.train()

    def end(self) -> float:
        """Note the end of the algorithm, and return its time; later work is off the clock."""
        record = self._recorder.record
        finished_s = record.finished_s if record.is_through else None
        finished_s = self._recorder.end_algorithm() if finished_s is None else finished_s
        self._recorder.on_metrics = None
        self._notice()
        if self.replica.computes:
            self.replica.ledger.end(well=False)
            self._recorder.ledger = None
            record.samples.append(self.replica.ledger.notes())
        return finished_s

    async def judge(self, finished_s: float) -> None:
        """Finish the evaluations, if this node represents the run.

        After unplanned losses of real nodes, that is the lowest rank left.
        """
        may_be_left = not self.stands_for_the_run and not self._recorder.losses_are_planned
        if may_be_left and await is_lowest(self._whole, self._late):
            self._may_stand = True
            self._look()
        if self.stands_for_the_run and self.evaluations is None:
            self._look()  # the time was up before any group began, so nothing has been evaluated
        if self.evaluations is not None and self.stands_for_the_run:
            await self.evaluations.finish(finished_s)
            if self.replica.computes and (found := self.evaluations.check_statistics()):
                self._recorder.record.notice(STALE_STATISTICS, found, "")

    def keep_evaluations(self) -> None:
        """Record the evaluations that have been made, and make no more."""
        if self.evaluations is not None and self.stands_for_the_run:
            self.evaluations.keep()

    # The supervisor calls the methods below; see simcluster.regroup.supervisor.Trainee.

    def begin(self, node: Transport, number: int, memory: CaptureMemory, capture: Capture | None) -> None:
        record = self._recorder.record
        record.group_number, record.group_rank = number, node.rank
        if node is not self._node:
            before = self.replica
            self._notice()
            self._make(node, capture)
            if before.computes:
                self.replica.ledger.follow(before.ledger, [number, node.rank, node.size])
            self._keep(node, number)
        record.is_through, record.finished_s = False, None
        record.trained = record.trained or capture is not None
        memory.begin(self.replica, node.rng, node.size)
        self._look()

    async def train(self) -> None:
        experiment = self._experiment
        node = self._node
        # A re-formed group may begin from a state in which all steps are done.
        is_over = node is not self._whole and self.replica.done >= self.replica.steps
        if not is_over:
            observe = experiment.observe
            seen: Any = node if self._device == HOST else DeviceTransport(node, self._device)
            exchange, is_late = self._exchange(seen)
            seen = seen if exchange is None or is_late else exchange
            seen = ObservedTransport(seen, self.replica, self._recorder, observe) if observe.block else seen
            if "path" in experiment.document["algorithm"]:
                seen = self._watch = AlgorithmWatch(seen, self.replica, self._recorder.record)
            ranks = getattr(node, "members", range(node.size))
            size_bytes = sum(weights.nbytes for weights in self.replica.shapes)
            settings = by_place(experiment.algorithm_settings, experiment.topology, ranks, size_bytes)
            await experiment.algorithm(seen, self.replica, **settings)
            if exchange is not None and is_late:
                exchange.look()
                await share_statistics(exchange, STATISTICS)
            if exchange is not None:
                exchange.settle()
        self._recorder.record.is_through = True
        self._recorder.record.ended_early = self.replica.ended_early
        self._recorder.end_algorithm()

    def _exchange(self, node: Transport) -> tuple[StatisticsExchange | None, bool]:
        """Return (the exchange of running statistics, whether it happens only at the end).

        The exchange is None if the replica has no running statistics to share. Normally the
        statistics travel with the messages of *node*. But if ranks exchange sums some steps late,
        statistics of different steps would be mixed, so they are exchanged once at the end.
        """
        replica = self.replica
        facts = facts_of(self._experiment.algorithm)
        if facts.running == "none" or node.size == 1 or not replica.running:
            return None, False
        exchange = StatisticsExchange(node, replica, facts.running, replica.batch_sizes)
        if facts.in_step and facts.apart(self._experiment.algorithm_settings) > 0:
            return exchange, True
        replica.settle_statistics = exchange.settle
        return exchange, False

    def regrouped(self, decision: Decision, step: int, batches: int) -> None:
        row: dict[str, Any] = {"time_s": self._recorder.now(), "step": step}
        for kind in ("lost", "joined", "members"):
            row[kind] = [self._names[rank] for rank in getattr(decision, kind)]
        row["group"], row["after"] = decision.number, [decision.capture.number, batches]
        self._recorder.record.regroups.append(row)

    @property
    def _can_regroup(self) -> bool:
        return can_regroup(self._experiment, losses_are_planned=self._recorder.losses_are_planned)

    def _notice(self) -> None:
        """Record suspicious behaviour of the algorithm, and whether the weights have changed."""
        record = self._recorder.record
        replica = self.replica
        if self._watch is not None:
            self._watch.end()
            self._watch = None
        for (method, at), count in replica.outside.items():
            record.notice(OUTSIDE, method, at, count)
        replica.outside.clear()
        if replica.computes and facts_of(self._experiment.algorithm).has_model:
            moved = replica.steps_taken > 0 or replica.changes() != self._initial_changes
            moved = moved or any(row.kind == IN_PLACE for row in record.noticed)
            record.changed = bool(record.changed) or moved

    def _make(self, node: Transport, capture: Capture | None) -> None:
        """Make a replica for the rank of *node*.

        It begins with the state of *capture*, redistributed among the ranks as a checkpoint is.
        Without a capture, it begins with the checkpoint to resume from, if any.
        """
        experiment = self._experiment
        self._node = node
        epochs = experiment.document["stop"].get("epochs") if node is not self._whole else None
        length: dict[str, Any] = {"steps": experiment.steps} if epochs is None else {"epochs": epochs}
        make = partial(experiment.workload.replica, node.rank, node.size, experiment.seed)
        how: dict[str, Any] = {"numerics": experiment.numerics, "in_parts": self._in_parts, "device": self._device}
        self.replica = replica = make(**length, **how)
        self._initial_changes = replica.changes() if replica.computes else 0
        replica.is_to_leave = lambda: self._recorder.told_to_leave
        replica.on_step = lambda step: self._recorder.reached(step)
        replica.ledger.incarnation = self._recorder.incarnation
        facts = facts_of(experiment.algorithm)
        replica.ledger.in_step = in_step = facts.in_step
        replica.keeps_shapes = facts.keeps_shapes
        replica.may_stand = self._may_stand
        drawn = partial(getattr, replica, "drawn_samples")
        self._recorder.pace = TrainingPace(replica.steps, drawn, experiment.workload.tokens, in_step)
        self._recorder.ledger = partial(replica.ledger.notes, in_hand=True) if replica.computes else None
        if capture is not None:
            by_epochs = "epochs" in experiment.document["stop"]
            batches = capture.batches * capture.size // node.size if by_epochs else capture.batches
            put_back(capture, replica, node.rng, batches)
            replica.everybodys = [batches] * node.size if batches else []
        elif self._recorder.restored is not None:
            restore(self._recorder.restored, replica, node.rng)
            # A later group may begin from the checkpoint again, so keep it only if groups can be
            # re-formed.
            if not self._can_regroup:
                self._recorder.restored = None
        if (patience := experiment.document["stop"].get("patience")) is not None:
            Patience(patience, experiment.evaluate_every, node, replica, self._losses)

    def _losses(self, after: int) -> list[float]:
        return [] if self.evaluations is None else self.evaluations.losses(after)

    def _keep(self, node: Transport, number: int) -> None:
        """Checkpoint the replica from now on if the experiment and the backend use checkpoints."""
        settings = self._experiment.checkpoint
        channel = self._recorder.channel
        if settings is not None and channel is not None:
            every = settings.every
            judges = settings.best is not None
            self.replica.keeper = Holder(
                every, self.replica, node, channel, self._now,
                judges=judges, group=number, incarnation=self._recorder.incarnation,
            )  # fmt: skip

    def _now(self) -> float:
        return self._recorder.now() + self._began_s

    def _look(self) -> None:
        """Start to evaluate the replica if it represents the run.

        Also start to copy its weights if the experiment evaluates consensus.
        """
        # Without values every loss is unknown.
        if not (self._evaluate and self.replica.computes and facts_of(self._experiment.algorithm).has_model):
            return
        every = self._experiment.evaluate_every
        if self.evaluations is not None:
            self.evaluations.go_on(self.replica)
        elif self.stands_for_the_run:
            per_token = self._experiment.workload.tokens is not None
            self.evaluations = Evaluations(every, self.replica, self._recorder, per_token=per_token)
        if self._copies is not None:
            self._copies.go_on(self.replica)
        elif self._experiment.evaluate_consensus:
            self._copies = Copies(every, self.replica, self._recorder)
        if self.evaluations is not None or self._copies is not None:
            self._recorder.on_metrics = self._on_metrics

    def _on_metrics(self, step: int, _: dict[str, float]) -> None:
        if self.evaluations is not None and self.stands_for_the_run:
            self.evaluations.note(step)
        if self._copies is not None:
            self._copies.note(step)


def in_parts(experiment: Experiment, size: int) -> bool:
    """Return whether each of *size* ranks holds only a part of the model.

    Ranks keep the weights that they gathered last if the run may end between two gathers, if a rank
    other than 0 may come to represent it, or if the weights of all ranks are compared.
    """
    if experiment.time_s is not None or experiment.evaluate_consensus or any(map(may_lose, experiment.possible_faults)):
        return False
    return size > 1 and facts_of(experiment.algorithm).parts(size, experiment.algorithm_settings)


def can_regroup(experiment: Experiment, *, losses_are_planned: bool) -> bool:
    """Return whether *experiment* may lose a rank and can then continue by regrouping.

    If *losses_are_planned*, only the losses in the fault plan are possible.
    """
    facts = facts_of(experiment.algorithm)
    # Unequal batch sizes belong to certain nodes: the loss of one would change the joined batch.
    if len(set(experiment.workload.batch_sizes)) > 1:
        return False
    if not (experiment.regroup and facts.in_step) or facts.why_it_stays(experiment.algorithm_settings):
        return False
    return not losses_are_planned or any(map(may_lose, experiment.possible_faults))


def may_stand(rank: int, faults: Sequence[Fault], late: Collection[int] = ()) -> bool:
    """Return whether *rank* may come to represent the run.

    It may if *faults* may lose each lower rank that is not *late*. A late rank was absent at the
    start, and may join too late to train.
    """
    losing = [fault for fault in faults if may_lose(fault)]
    at_risk = {*late, *(fault.rank for fault in losing if isinstance(fault, NodeFault))}
    return any(not isinstance(fault, NodeFault) for fault in losing) or at_risk.issuperset(range(rank))


async def is_lowest(node: Transport, late: Collection[int] = ()) -> bool:
    """Return whether *node* knows every lower rank to be *late*, or lost before its end."""
    for rank in sorted({*range(node.rank)}.difference(late)):
        if rank in node.peers:
            return False
        lost = await heard(node, rank)
        if not isinstance(lost, PeerLost) or lost.reason == ENDED:
            return False
    return True
