"""A run in separate processes, hostile clients at all its ports, and the resources that it uses."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from simcluster_backends.sockets.coordinator.client import Client
from simcluster_backends.sockets.net.addresses import open_socket
from simcluster_backends.sockets.wire.keys import generate_key, write_key

from simcluster.errors import RunError
from tests.support.processes import by_age
from tools.hostile.clients import Door, GotIn, Tally, manners

NODES = 4
START_S = 90.0
SETTLE_S = 15.0
"""The time limit for closing the connections of hostile clients, once the last client has left."""

EXPERIMENT = Path(__file__).parent / "paced.yaml"


@dataclass
class Taken:
    """The resident bytes and file descriptors of a process: first, peak and last values."""

    first_bytes: int = 0
    peak_bytes: int = 0
    last_bytes: int = 0
    first_files: int = 0
    peak_files: int = 0
    last_files: int = 0

    @property
    def grown_bytes(self) -> int:
        return self.peak_bytes - self.first_bytes

    def look(self, process: psutil.Process) -> None:
        """Record the current numbers of *process*. Keep the last ones if it has ended."""
        try:
            now_bytes = process.memory_info().rss
            now_files = process.num_fds()
        except psutil.Error:
            return
        if not now_bytes:
            return  # a zombie
        self.last_bytes = now_bytes
        self.last_files = now_files
        self.first_bytes = self.first_bytes or now_bytes
        self.first_files = self.first_files or now_files
        self.peak_bytes = max(self.peak_bytes, now_bytes)
        self.peak_files = max(self.peak_files, now_files)


@dataclass
class Run:
    """A run in progress: its launcher, its nodes, and its ports as doors."""

    launcher: subprocess.Popen[str]
    folder: Path
    client: Client
    key: bytes
    http_port: int
    nodes: list[psutil.Process] = field(default_factory=list)
    doors: list[Door] = field(default_factory=list)
    taken: dict[str, Taken] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        return self.launcher.poll() is None

    @property
    def step(self) -> int:
        """The current step, according to the coordinator."""
        run = self.client.get("/status")["run"]
        return int(run["step"] or 0) if run else 0

    @property
    def members(self) -> set[str]:
        """The names of the nodes in the run, according to the coordinator."""
        return {worker["name"] for worker in self.client.get("/status")["workers"]}

    def find(self) -> None:
        """Wait for the first step, then find processes and doors.

        Raise RuntimeError if no step begins in time.
        """
        end_s = time.monotonic() + START_S
        while True:
            if not self.goes_on or time.monotonic() > end_s:
                raise RuntimeError(f"the run did not start: {self.launcher.communicate()}")
            listening = self._listening()
            if len(listening) == NODES + 2:
                try:
                    if self.step >= 1:
                        break
                except RunError:
                    pass
            time.sleep(0.05)
        own = psutil.Process(self.launcher.pid)
        self.nodes = by_age({process for process, _ in listening if process != own})
        for process, port in listening:
            kind = "http" if port == self.http_port else "rendezvous"
            if process != own:
                kind = "data"
            self.doors.append(Door(kind, "127.0.0.1", port, self.key))
        self.look()

    def look(self) -> None:
        """Record the current resources of every process."""
        named = {"launcher": psutil.Process(self.launcher.pid)} if self.goes_on else {}
        named |= {f"node {number}": process for number, process in enumerate(self.nodes)}
        for name, process in named.items():
            self.taken.setdefault(name, Taken()).look(process)

    def _listening(self) -> list[tuple[psutil.Process, int]]:
        found = []
        try:
            own = psutil.Process(self.launcher.pid)
            for process in [own, *own.children(recursive=True)]:
                found += [(process, c.laddr.port) for c in process.net_connections("tcp") if c.status == "LISTEN"]
        except psutil.Error:
            return []
        return found

    def at_work(self, steps: int, patience_s: float) -> dict[str, Taken]:
        """Return the resources before step number *steps*, as long as the run writes no file."""
        end_s = time.monotonic() + patience_s
        taken = deepcopy(self.taken)
        while self.goes_on and time.monotonic() < end_s:
            self.look()
            try:
                if self.step >= steps:
                    break
            except RunError:
                break  # it has ended
            taken = deepcopy(self.taken)
            time.sleep(0.05)
        return taken

    def result(self, patience_s: float) -> dict[str, Any]:
        """Wait for the end of the run, record resources until then, and return the summary."""
        end_s = time.monotonic() + patience_s
        while self.goes_on and time.monotonic() < end_s:
            self.look()
            time.sleep(0.2)
        if self.goes_on:
            raise RuntimeError("the run does not end")
        if self.launcher.returncode != 0:
            raise RuntimeError(
                f"exit code {self.launcher.returncode}: {(self.folder.parent / 'log').read_text()[-2000:]}"
            )
        summary: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return summary


@contextmanager
def running(folder: Path, steps: int, pace_s: float) -> Iterator[Run]:
    """Start a run of *steps* steps on four nodes with a coordinator.

    A step takes at least *pace_s*.

    A run that is still in progress at the end of the block is stopped.
    """
    folder.mkdir()
    key = generate_key()
    for name in ("key", "token"):
        write_key(folder / name, key if name == "key" else generate_key())
    with open_socket("127.0.0.1", 0, "coordinator") as free:
        port = free.getsockname()[1]
    settings = [f"stop.steps={steps}", f"algorithm.pace_s={pace_s:g}"]
    command = [sys.executable, "-m", "simcluster", "run", str(EXPERIMENT), "--backend", "sockets", "--no-report"]
    command += [word for setting in settings for word in ("--set", setting)]
    command += ["--coordinator", f"127.0.0.1:{port}", "--token-file", str(folder / "token")]
    command += ["--key-file", str(folder / "key"), "--out", str(folder / "run")]
    with (folder / "log").open("w") as log:
        launcher = subprocess.Popen(command, stdout=log, stderr=log, text=True)
    client = Client(f"http://127.0.0.1:{port}", (folder / "token").read_text().strip())
    run = Run(launcher, folder / "run", client, key, port)
    try:
        run.find()
        yield run
    finally:
        if run.goes_on:
            launcher.terminate()
            try:
                launcher.wait(30)
            except subprocess.TimeoutExpired:
                launcher.kill()


@dataclass
class Besieged:
    """The outcome of a siege: the attempts, its length, and how an honest client fared meanwhile.

    *answered* and *unanswered* count this client's requests to the coordinator.
    """

    tally: Tally
    seconds: float = 0.0
    answered: int = 0
    unanswered: int = 0


async def besiege(run: Run, seconds: float, seed: int) -> Besieged:
    """Let all hostile clients attack every door for *seconds*. Return the outcome."""
    found = Besieged(Tally())
    end_s = time.monotonic() + seconds
    began_s = time.monotonic()
    members = run.members
    seen = set(members)

    async def one(door: Door, kind: str, number: int, visit: Any) -> None:
        chance = random.Random(f"{seed}/{door.kind}/{run.doors.index(door)}/{kind}/{number}")
        while time.monotonic() < end_s:
            try:
                how = await visit(door, chance)
            except GotIn as error:
                how = "GOT IN"
                found.tally.faults.append(f"{door.kind}, {kind}: {error}")
            except asyncio.CancelledError:
                found.tally.note(door.kind, kind, "still there when the siege ended")
                raise
            except OSError as error:
                how = f"not reached ({type(error).__name__})"
            if how == "HELD OPEN":
                found.tally.faults.append(f"{door.kind}, {kind}: held open")
            found.tally.note(door.kind, kind, how)
            await asyncio.sleep(chance.uniform(0.0, 20.0 if kind == "crowd" else 0.4))

    async def honest() -> None:
        while time.monotonic() < end_s:
            run.look()
            try:
                seen.update(await asyncio.to_thread(lambda: run.members))
                found.answered += 1
            except RunError:
                found.unanswered += 1
            await asyncio.sleep(1.0)

    async with asyncio.timeout(seconds + 60.0), asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(one(door, kind, number, visit))
            for door in run.doors
            for kind, (count, visit) in manners(door).items()
            for number in range(count)
        ]
        await honest()
        for task in tasks:
            task.cancel()
    found.seconds = time.monotonic() - began_s
    if not run.goes_on:
        found.tally.faults.append("the run ended before the siege")
    if strangers := seen - members:
        found.tally.faults.append(f"the coordinator counts {', '.join(sorted(strangers))} in")
    return found


def settle(run: Run) -> None:
    """Wait up to SETTLE_S until the connections of all hostile clients are closed."""
    end_s = time.monotonic() + SETTLE_S
    while time.monotonic() < end_s and run.goes_on:
        run.look()
        if all(taken.last_files <= taken.first_files for taken in run.taken.values()):
            break
        time.sleep(0.2)
