"""Plays a seed on real processes: runs the command, performs the acts, and waits for its end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from simcluster_backends.sockets.wire.keys import write_key

from tests.support.socket_runs import free_port
from tools.swarm_real.draw import Act, Drawn
from tools.swarm_real.launcher import Launcher
from tools.swarm_real.paced import DRAWN, PACE, PLACE, TAKEN

LIMIT_S: Final = 90.0
"""The limit on the time that a command takes after the last act.

A run without progress fails much earlier by itself, after `stuck_s`.
"""
LOOK_S: Final = 0.01
SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
GRACE_S: Final = 2.0
"""The time for the machine to remove killed processes."""


@dataclass
class Lived:
    """What a command did and left. *code* is None if it had to be killed.

    *done* has the acts that reached a live process, and *early* those before any batch was drawn.
    By life of a node, *drawn* counts batches and *taken* gradients. *held_up_s* is the longest time
    for which the machine did not run this process, and perhaps others. *before* has act -> (life
    that it hit, gradients that this life had computed by then).
    """

    folder: Path
    code: int | None = None
    said: str = ""
    done: list[Act] = field(default_factory=list)
    early: list[Act] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    held_up_s: float = 0.0
    before: dict[Act, tuple[str, int]] = field(default_factory=dict)


def live(drawn: Drawn, place: Path, launcher: Launcher) -> Lived:
    """Run *drawn* with *launcher*. *place* must be an empty folder."""
    file, token = place / "experiment.json", place / "token"
    file.write_text(json.dumps(drawn.case.document))
    options = [f"{key}={value}" for key, value in drawn.case.options.items() if key != "max_restarts"]
    words = ["run", str(file), "--backend", "sockets", "--out", str(place / "run"), "--no-report"]
    words += [word for option in options for word in ("--option", option)]
    words += ["--max-restarts", str(drawn.case.options.get("max_restarts", 0))]
    port = 0
    if any(act.kind == "post" for act in drawn.acts):
        port = free_port()
        write_key(token, os.urandom(32))
        words += ["--coordinator", f"127.0.0.1:{port}", "--token-file", str(token)]
    return command(words, place, launcher, drawn, port)


def command(words: list[str], place: Path, launcher: Launcher, drawn: Drawn, port: int = 0) -> Lived:
    """Run `simcluster` with the arguments *words*, and act on its nodes as *drawn* says.

    The run's folder is *place*/run.
    """
    nodes, lived = place / f"nodes-{len(list(place.glob('nodes-*')))}", Lived(place / "run")
    nodes.mkdir()
    said = nodes.with_name(f"{nodes.name}.said")
    launcher.begin(words, said, {PLACE: str(nodes), PACE: str(drawn.pace_s)})
    _Watch(drawn.acts, nodes, place / "token", port, lived).until_it_ends(launcher)
    lived.said = said.read_text(errors="replace")
    for letter, counts in ((DRAWN, lived.drawn), (TAKEN, lived.taken)):
        counts.update((path.name, path.read_bytes().count(letter)) for path in nodes.iterdir())
    until_s = time.monotonic() + GRACE_S
    while lived.code is not None and (left := launcher.left()) and time.monotonic() < until_s:
        time.sleep(LOOK_S)
        lived.left = [f"process {process.pid}" for process in left]
    if lived.code is None or not left:
        lived.left = []
    lived.left += [f"port {port}" for port in launcher.ports()] if lived.code is not None else []
    if lived.code is None or lived.left:
        launcher.close()
    return lived


class _Watch:
    """An observer of a run, which reads the files that its nodes write, and acts on the nodes."""

    def __init__(self, acts: tuple[Act, ...], nodes: Path, token: Path, port: int, lived: Lived) -> None:
        self._waiting = list(acts)
        self._nodes = nodes
        self._token = token
        self._port = port
        self._lived = lived
        self._stopped: list[tuple[float, int]] = []
        self._last_s = time.monotonic()

    def until_it_ends(self, launcher: Launcher) -> None:
        now_s = time.monotonic()
        while (code := launcher.ended()) is None and now_s - self._last_s < LIMIT_S:
            time.sleep(LOOK_S)
            before_s, now_s = now_s, time.monotonic()
            self._lived.held_up_s = max(self._lived.held_up_s, now_s - before_s)
            self._look(now_s)
        self._lived.code = code

    def _look(self, now_s: float) -> None:
        lives = {path: path.read_bytes() for path in self._nodes.iterdir()}
        most = max((letters.count(TAKEN) for letters in lives.values()), default=0)
        for act in [act for act in self._waiting if act.gradients <= most]:
            if self._act(act, sorted(lives, key=lambda path: path.stat().st_ctime), now_s):
                self._waiting.remove(act)
                self._last_s = max(self._last_s, now_s + (act.for_s or 0.0))
                if not any(DRAWN in letters for letters in lives.values()):
                    self._lived.early.append(act)
        for until_s, pid in [stopped for stopped in self._stopped if stopped[0] < now_s]:
            self._stopped.remove((until_s, pid))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _act(self, act: Act, lives: list[Path], now_s: float) -> bool:
        """Perform *act* if its node has had a process yet, dead or alive. Return whether it has."""
        own = [path for path in lives if path.stem == act.node]
        if not own:
            return False
        self._lived.before[act] = own[-1].name, own[-1].read_bytes().count(TAKEN)
        if act.kind == "post":
            if self._asked_to_leave(act.node):
                self._lived.done.append(act)
            return True
        with suppress(ProcessLookupError):
            os.kill(pid := int(own[-1].suffix[1:]), SIGNALS[act.kind])
            self._lived.done.append(act)
            if act.kind == "stop" and act.for_s is not None:
                self._stopped.append((now_s + act.for_s, pid))
        return True

    def _asked_to_leave(self, node: str) -> bool:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)) as connection:
            try:
                authorization = {"Authorization": f"Bearer {self._token.read_text().strip()}"}
                connection.request("POST", f"/workers/{node}/leave", headers=authorization)
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False  # the run has ended


def read(folder: Path) -> dict[str, Any]:
    """Return the summary of the run in *folder*, or an empty one if there is none."""
    file = folder / "summary.json"
    return dict(json.loads(file.read_text())) if file.is_file() else {}
