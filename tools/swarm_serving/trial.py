"""A trial of one seed of the swarm of served models, in the simulator or on processes.

Every request must end exactly once, with the tokens that a single node would give it. Only a run
that loses every node may end a request with an error.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar

from msgspec.structs import replace as replaced
from simcluster_backends import sim

import simcluster
from simcluster.errors import PeerLost, RunError
from simcluster.job import ClusterJob
from simcluster.lm.engine.request_source import RequestSource, TokenSink
from simcluster.lm.engine.scheduler import Scheduler
from simcluster.lm.request import Request
from simcluster.lm.serving import program
from simcluster.lm.serving.desk.request_broker import PendingAnswer, RequestBroker
from simcluster.lm.serving.node_program import _why
from simcluster.lm.serving.run import answer_all, faults_on
from simcluster.lm.serving.setup import PlacementLayout, PlacementState, read_setup
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import Transport
from tests.support.processes import forked_nodes
from tools.swarm_serving.draw import LAYERS, Case, drawn, setup_of


class Clients:
    """The clients of one broker. *answers* and *ends* are by request id; *wrong* lists problems."""

    def __init__(self, case: Case) -> None:
        self.front = RequestBroker(now=lambda: 0.0)
        self.answers = dict[str, PendingAnswer]()
        self.wrong = list[str]()
        asked: list[tuple[float, Request | str]] = [(one.arrival_s, one) for one in case.requests]
        self.events = sorted([*asked, *((at_s, id) for id, at_s in case.cancels.items())], key=lambda event: event[0])
        self.ends: dict[str, int] = {}
        self.front.observer = self

    async def run(self) -> None:
        """Send the case's requests and cancels at their times.

        Stop the broker after the last answer.

        If this node is lost, another one continues.
        """
        loop = asyncio.get_running_loop()
        while self.events:
            await asyncio.sleep(max(0.0, self.events[0][0] - loop.time()))
            _, event = self.events.pop(0)
            if isinstance(event, Request):
                answer = self.answers[event.id] = self.front.ask(event)
                answer.loop = _Deaf()  # type: ignore[assignment]
            elif event in self.answers:
                self.front.cancel(self.answers[event])
        while self.front.open_requests:
            await asyncio.sleep(1e-3)
        self.front.stop()

    def token(self, answer: PendingAnswer) -> None:
        if answer.request.id in self.ends:
            self.wrong.append(f"request {answer.request.id}: a token after its end")

    def end(self, answer: PendingAnswer, at_s: float) -> None:
        self.ends[answer.request.id] = self.ends.get(answer.request.id, 0) + 1


class _Deaf:
    def call_soon_threadsafe(self, *_: Any) -> None:
        return


class Counted(Scheduler):
    """A scheduler that records in *wrong* when the number of blocks changes.

    *made* has all schedulers of a run.
    """

    made: ClassVar[list[Counted]] = []
    wrong: ClassVar[set[str]] = set()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.made.append(self)

    def issue(self, *planned: Any) -> Any:
        issued = super().issue(*planned)
        numbers = [*(sequence.number for sequence in self._by_slot.values()), *self._room.kept.values()]
        held = sum(map(self.blocks.held, numbers))
        if self.blocks.free + held != self.blocks.total:
            self.wrong.add("blocks are not conserved")
        return issued


_clients: list[Clients] = []


async def play(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Run a node as `serve` does, but without a pacer."""
    clients, part = _clients[-1], program.ServingPart(recorder, read_setup(config_json))
    front = clients.front

    @asynccontextmanager
    async def desk(placed: PlacementState) -> AsyncIterator[tuple[RequestSource, TokenSink]]:
        front.open(asyncio.get_running_loop().call_soon, placed)
        asking = asyncio.create_task(clients.run())
        try:
            yield front, front
        except BaseException:
            front.pause()
            raise
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking

    try:
        return await part.take(node, desk)
    except PeerLost as error:
        front.close(_why(error))
        raise


def alone(case: Case) -> dict[str, tuple[int, ...]]:
    """Return request id -> the tokens from a node that answers only this request."""
    one_node = Case(
        case.topology, PlacementLayout("alone", (0,), (LAYERS,)), case.limits | {"batches": 1, "guesses": 0}, []
    )
    expected = {}
    for one in case.requests:
        one_node.requests = [one]
        expected[one.id] = answer_all(setup_of(one_node, given=True), case.topology).answers[one.id].tokens
    return expected


def broken(seed: int) -> list[str]:
    """Return the problems that *seed* shows in the simulator."""
    case = drawn(seed)
    expected = alone(case)
    with simcluster.faults() as plan:
        plan.faults += case.faults
        faults = faults_on(case.topology)
    clients = Clients(case)
    _clients.append(clients)
    Counted.made.clear()
    Counted.wrong.clear()
    before, program.Scheduler = program.Scheduler, Counted  # type: ignore[misc]
    try:
        job = ClusterJob(
            case.topology.workers, setup_of(case).written(), program=f"{__name__}:play", topology=case.topology,
            faults=faults, options={"dead_s": case.dead_s},
        )  # fmt: skip
        record = sim.run_cluster(job)
    finally:
        program.Scheduler = before  # type: ignore[misc]
        _clients.pop()
    return [*clients.wrong, *Counted.wrong, *_judged(case, clients, record, expected)]


def _hit(case: Case) -> tuple[set[str], bool]:
    """Return (nodes that may be lost to faults, whether the run may fail because of them)."""
    hit = {fault["node"] for fault in case.faults if fault["kind"] in ("crash", "restart", "hang", "join")}
    cuts = any(fault["kind"] == "cut" for fault in case.faults)
    return hit, hit == set(case.topology.workers) or (cuts and len(hit) + 1 >= len(case.topology.workers))


def _judged(case: Case, clients: Clients, record: Any, expected: dict[str, tuple[int, ...]]) -> list[str]:
    wrong = []
    hit, may_fail = _hit(case)
    cuts = any(fault["kind"] == "cut" for fault in case.faults)
    if record.error is not None:
        if not isinstance(record.error, PeerLost):
            wrong.append(f"{type(record.error).__name__}: {record.error}")
        elif not may_fail:
            wrong.append(f"the run failed, though a node was left: {record.error}")
    for one in case.requests:
        answer = clients.answers.get(one.id)
        if answer is None:
            wrong += [] if record.error is not None or record.extra["lost"] else [f"request {one.id} was never taken"]
            continue
        tokens, whole = tuple(answer.tokens), expected[one.id]
        if tokens != whole[: len(tokens)]:
            wrong.append(f"request {one.id}: other tokens: {tokens}, alone {whole}")
        if answer.outcome is None:
            wrong += [] if may_fail else [f"request {one.id} has no end"]
        elif clients.ends.get(one.id) != 1:
            wrong.append(f"request {one.id} has {clients.ends.get(one.id)} ends")
        elif answer.outcome.reason == "error":
            is_named = any(f"({name})" in answer.outcome.message for name in case.topology.workers)
            wrong += [] if may_fail and is_named else [f"request {one.id}: {answer.outcome.message}"]
        elif answer.outcome.reason == "cancelled":
            wrong += [] if one.id in case.cancels else [f"request {one.id} was not cancelled, and ended so"]
        elif tokens != whole:
            wrong.append(f"request {one.id} ended after {len(tokens)} of {len(whole)} tokens")
    if record.error is None and not hit and not cuts:
        for one in Counted.made:
            kept = sum(map(one.blocks.held, one._room.kept.values()))
            if not one.is_empty or one.blocks.free + kept != one.blocks.total:
                wrong.append("sequences or blocks are left behind")
    return wrong


def broken_on_processes(seed: int) -> list[str]:
    """Return the problems of *seed*'s placement and requests on real nodes.

    After a drawn number of tokens, one node is killed by SIGKILL or stopped forever by SIGSTOP.
    """
    case, chance = drawn(seed), random.Random(f"signals {seed}")
    names, shown = case.topology.workers, Counter[str]()
    place, after = chance.randrange(len(names)), chance.randint(1, 4)
    number = chance.choice([signal.SIGKILL, signal.SIGSTOP])
    sent = []

    def show(request: str, token: int) -> None:
        shown[request] += 1
        if shown.total() == after:
            # There are no nodes if the run has already ended.
            for node in forked_nodes(len(names))[place : place + 1]:
                node.send_signal(number)
                sent.append(names[place])

    asked = [replace(one, arrival_s=0.0) for one in case.requests]
    setup = replaced(
        setup_of(case), is_real=True, requests=tuple(asked), limits=replace(setup_of(case).limits, guesses=0)
    )
    whole = answer_all(replaced(setup, is_real=False, recovery=None), case.topology)
    expected = {name: answer.tokens for name, answer in whole.answers.items()}
    with simcluster.faults() as plan:
        for name in names:
            plan.slow(name, at_s=0.0, factor=20.0)
        try:
            found = answer_all(setup, case.topology, backend="sockets", options={"dead_s": 3.0}, on_token=show)
        except RunError as error:
            return [f"{type(error).__name__}: {error}"]
    wrong = [f"lost {found.lost}, and {sent} got a signal"] if not set(found.lost) <= set(sent) else []
    for name, tokens in expected.items():
        if found.answers[name].tokens != tokens:
            wrong.append(f"request {name}: other tokens: {found.answers[name].tokens}, simulated {tokens}")
        if shown[name] != len(tokens):
            wrong.append(f"request {name}: {shown[name]} of {len(tokens)} tokens were shown")
    return wrong


def broken_when_generated(seed: int) -> list[str]:
    """Return the problems of *seed*'s requests and faults if `generate` answers the requests."""
    case = drawn(seed)
    setup = replaced(setup_of(case), requests=tuple(case.requests))
    expected = alone(case)
    hit, may_fail = _hit(case)
    with simcluster.faults() as plan:
        plan.faults += case.faults
        try:
            found = answer_all(setup, case.topology, options={"dead_s": case.dead_s})
        except PeerLost as error:
            return [] if may_fail else [f"the run failed, though a node was left: {error}"]
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]
    wrong = []
    for name, tokens in expected.items():
        if found.answers[name].tokens != tokens:
            wrong.append(f"request {name}: other tokens: {found.answers[name].tokens}, alone {tokens}")
    return wrong + ([f"lost {dict(found.lost)}, hit {hit}"] if set(found.lost) - hit and not may_fail else [])
