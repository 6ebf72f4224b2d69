"""A run in processes of its own, clients at all of its doors, and what its processes take meanwhile."""

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
"""So long after the last client the processes may still have connections of theirs."""

EXPERIMENT = Path(__file__).parent / "paced.yaml"


@dataclass
class Taken:
    """What a process has: resident bytes and file descriptors, at first, at most and at last."""

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
        try:
            now_bytes, now_files = process.memory_info().rss, process.num_fds()
        except psutil.Error:
            now_bytes = 0
        if not now_bytes:
            return  # it has ended: what it had last stays
        self.last_bytes, self.last_files = now_bytes, now_files
        self.first_bytes, self.first_files = self.first_bytes or self.last_bytes, self.first_files or self.last_files
        self.peak_bytes, self.peak_files = max(self.peak_bytes, self.last_bytes), max(self.peak_files, self.last_files)


@dataclass
class Run:
    """A run that goes on: its launcher, its nodes, its doors."""

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
        """As the coordinator says."""
        run = self.client.get("/status")["run"]
        return int(run["step"] or 0) if run else 0

    @property
    def members(self) -> set[str]:
        """Who takes part, as the coordinator says."""
        return {worker["name"] for worker in self.client.get("/status")["workers"]}

    def find(self) -> None:
        """Waits until it is on its way."""
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
            kind = "data" if process != own else "http" if port == self.http_port else "rendezvous"
            self.doors.append(Door(kind, "127.0.0.1", port, self.key))
        self.look()

    def look(self) -> None:
        """What every process has now."""
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
        """What its processes have had when it is about to make the last of *steps*, and nothing is written yet."""
        end_s, taken = time.monotonic() + patience_s, deepcopy(self.taken)
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
        """What it says of itself at its end; looks at its memory until then."""
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
    """*steps* steps of four nodes, each at least *pace_s* long, with a coordinator; ended in any case."""
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
    """What came of a siege: the tally, how long it went, how often the coordinator's own client was answered."""

    tally: Tally
    seconds: float = 0.0
    answered: int = 0
    unanswered: int = 0


async def besiege(run: Run, seconds: float, seed: int) -> Besieged:
    """Everybody at every door for *seconds*."""
    found, end_s = Besieged(Tally()), time.monotonic() + seconds
    began_s, members = time.monotonic(), run.members
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
    """Waits until everybody's connections are closed again, as long as that may take."""
    end_s = time.monotonic() + SETTLE_S
    while time.monotonic() < end_s and run.goes_on:
        run.look()
        if all(taken.last_files <= taken.first_files for taken in run.taken.values()):
            break
        time.sleep(0.2)
