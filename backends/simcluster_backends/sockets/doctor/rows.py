"""Make a row for every node: its machine's answers, the route to it, and its troubles."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from simcluster.errors import Problem, raise_all
from simcluster.job import Remote
from simcluster.process.platforms import need_unix
from simcluster.topology import Node, Topology
from simcluster.topology.model.compute import CPU
from simcluster_backends.sockets.doctor.links import links_taken
from simcluster_backends.sockets.doctor.probe import MachineAnswers, probe
from simcluster_backends.sockets.doctor.problems import Trouble, troubles_of, why_not_asked
from simcluster_backends.sockets.doctor.routes import PacketRoute, route_to, why_unreachable
from simcluster_backends.sockets.launcher.facts import why_not_ours
from simcluster_backends.sockets.launcher.machine_messages import ExamineOrder, Fingerprint, fingerprint
from simcluster_backends.sockets.net.addresses import resolved
from simcluster_backends.sockets.net.ssh import Ssh

MOST_S = 600.0
AT_ONCE = 32
"""The limit on machines that are questioned at the same time."""

Way = Literal["ssh", "here", "by hand"]


@dataclass
class DoctorRow:
    """The findings about one node. A field is None if nothing was found out about it."""

    node: str
    way: Way
    ssh: str | None
    address: str | None
    ssh_works: bool | None = None
    python: str | None = None
    simcluster: str | None = None
    torch: str | None = None
    clock_offset_ms: float | None = None
    clock_uncertainty_ms: float | None = None
    route: PacketRoute | None = None
    free_memory_bytes: int | None = None
    accelerator: str | None = None
    compute: str = CPU
    links: dict[str, str] = field(default_factory=dict)  # a peer to connect to -> the link there
    problems: list[Trouble] = field(default_factory=list)


def doctor(topology: Topology, timeout_s: float, config: str | None, options: Sequence[str]) -> list[DoctorRow]:
    """Examine every worker of *topology*; return one row per worker.

    *timeout_s* limits the questions to each machine. *config* is an ssh configuration file, and
    *options* has ssh options as KEY=VALUE. Raise UsageError if an argument is invalid.
    """
    need_unix("nodes")
    problems = [
        Problem("--ssh-option", repr(one), "KEY=VALUE, as ssh's -o takes it") for one in options if "=" not in one
    ]
    if not 0 < timeout_s <= MOST_S:
        problems.append(Problem("--timeout", f"{timeout_s:g}", f"more than 0 and at most {MOST_S:g} s"))
    raise_all(problems)
    return asyncio.run(_Examination(topology, timeout_s, Ssh(config, tuple(options))).rows())


class _Examination:
    """An examination of *topology*: each machine is questioned once, however many nodes it has."""

    def __init__(self, topology: Topology, timeout_s: float, ssh: Ssh) -> None:
        self._topology = topology
        self._nodes = [topology.nodes[name] for name in topology.workers]
        self._timeout_s = timeout_s
        self._ssh = ssh
        self._ways: dict[str, Way] = {}
        self._asking: dict[Any, asyncio.Task[MachineAnswers]] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def rows(self) -> list[DoctorRow]:
        here = await asyncio.to_thread(fingerprint)
        self._ways = await asyncio.to_thread(lambda: {node.name: _way(node) for node in self._nodes})
        return await asyncio.gather(*(self._row(node, here) for node in self._nodes))

    async def _row(self, node: Node, here: Fingerprint) -> DoctorRow:
        row = DoctorRow(node.name, self._ways[node.name], node.ssh, node.address, compute=node.compute)
        looking = asyncio.create_task(self._look_for(node, row))
        if row.way != "by hand":
            self._fill(row, await self._answers(node), here)
        await looking
        return row

    async def _look_for(self, node: Node, row: DoctorRow) -> None:
        """Add the route to *node* to *row*, and a trouble if its address does not answer."""
        if row.way == "here":
            return
        host = node.address
        if host is None and node.ssh is not None:
            with suppress(OSError):  # ssh is missing: the machine's answers report that
                host = await resolved(node.ssh, self._ssh)  # None if a jump host is needed
        row.route = await route_to(host) if host is not None else None
        if node.address is None:
            return
        if row.route is None:
            what = f"this machine has no route to {node.address}"
            row.problems.append(Trouble(what, "check the address, and this machine's routes: docs/shelf.md"))
        elif reason := await why_unreachable(node.address, node.port or 0):
            what = f"nothing answers at {node.address}: {reason}"
            row.problems.append(Trouble(what, "check cable, address, firewall, and whether it sleeps: docs/shelf.md"))

    async def _answers(self, node: Node) -> MachineAnswers:
        """Return the answers of *node*'s machine, which is questioned only once."""
        machine = self._machine(node)
        if machine not in self._asking:
            own = [other.address for other in self._nodes if other.address and self._machine(other) == machine]
            peers = [other.address for other in self._nodes if other.address and self._machine(other) != machine]
            if node.ssh is None:
                command = [sys.executable, "-m", "simcluster", "node", node.name, "--launched"]
            else:
                words = [*(node.command or Remote.command), "node", node.name, "--launched"]
                command = self._ssh.command(node.ssh, words)
            question = ExamineOrder(list(dict.fromkeys(own)), list(dict.fromkeys(peers)))
            self._asking[machine] = asyncio.create_task(self._probe(command, question))
        return await self._asking[machine]

    async def _probe(self, command: Sequence[str], question: ExamineOrder) -> MachineAnswers:
        async with self._at_once:
            return await probe(command, question, self._timeout_s)

    def _machine(self, node: Node) -> Any:
        """Return a key that nodes share if one command starts them on one machine."""
        if self._ways[node.name] == "by hand":
            return node.name
        return node.ssh, node.command if node.ssh is not None else ()

    def _fill(self, row: DoctorRow, answers: MachineAnswers, here: Fingerprint) -> None:
        versions = answers.fingerprint.versions if answers.fingerprint is not None else {}
        row.python, row.simcluster, row.torch = map(versions.get, ("python", "simcluster", "torch"))
        if row.way == "ssh":
            row.ssh_works = answers.fingerprint is not None or answers.exit_code not in (None, 255)
        if answers.clock_offset_s is not None and answers.clock_error_s is not None:
            row.clock_offset_ms = answers.clock_offset_s * 1e3
            row.clock_uncertainty_ms = answers.clock_error_s * 1e3
        if answers.facts is not None:
            row.free_memory_bytes = answers.facts.free_memory_bytes
            row.accelerator = answers.facts.accelerator or None
            row.links, wrong = links_taken(self._topology, row.node, answers.facts)
            row.problems += wrong
        if answers.failure:
            row.problems.append(why_not_asked(answers, row.ssh if row.way == "ssh" else None))
        row.problems += troubles_of(answers, here, row.address, row.compute)


def _way(node: Node) -> Way:
    """Return how a run starts *node*: by hand if it has no `ssh`, and an address that is not this
    machine's.
    """
    if node.ssh is not None:
        return "ssh"
    return "by hand" if node.address is not None and why_not_ours(node.address) else "here"
