"""`python -m tools.moves`: count the moves between files per token of an answer.

A move is a call to a function in another file of the packages. Frames of other libraries are
ignored, and resuming a coroutine counts as a call. The program lets `simcluster generate` make a
shorter and a longer answer in the simulator, timing only, in a pipeline of two nodes. It divides
the difference of their moves by the difference of their tokens, and exits with 1 if the result is
above the goal.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import simcluster_backends
from typer.testing import CliRunner

import simcluster
from simcluster.cli.app import app
from simcluster.lm.serving import extended

GOAL = 200
LENGTHS = (32, 160)
ANSWER = "generate --model smollm2 --placement pipeline --prompt-tokens 16 --json"
TOPOLOGY = """\
machines: {one: {cores: 4}}
nodes: {a: {device: mac-mini-m4, machine: one}, b: {device: mac-mini-m4, machine: one}}
links: [{between: [a, b], type: loopback}]
"""


class MoveCounter:
    """A profiler that counts *moves*, by (file of the caller, file of the function), and *calls*,
    by file.
    """

    def __init__(self, *packages: Path) -> None:
        self._names: dict[str, str | None] = {}
        self._packages = packages
        self.moves: Counter[tuple[str, str]] = Counter()
        self.calls: Counter[str] = Counter()

    def name_of(self, frame: FrameType) -> str | None:
        """Return the name of the frame's file in the packages, or None if it belongs to another
        library.
        """
        path = frame.f_code.co_filename
        if path not in self._names:
            owner = next((package for package in self._packages if Path(path).is_relative_to(package)), None)
            self._names[path] = None if owner is None else Path(path).relative_to(owner.parent).as_posix()
        return self._names[path]

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (name := self.name_of(frame)) is None:
            return
        self.calls[name] += 1
        caller = frame.f_back
        while caller is not None and (origin := self.name_of(caller)) is None:
            caller = caller.f_back
        if caller is not None and origin != name:
            self.moves[origin, name] += 1


def main() -> int:
    # Without this, an answer of any length is extended from a few simulated tokens.
    extended._is_still = lambda topology: False
    counted(1)  # a first answer imports modules and fills caches
    shorter, longer = (counted(tokens) for tokens in LENGTHS)
    tokens = LENGTHS[1] - LENGTHS[0]
    moves, calls = longer.moves - shorter.moves, longer.calls - shorter.calls
    per_token = moves.total() / tokens
    print(f"{per_token:.1f} moves per token; the goal is at most {GOAL}")
    print(f"{calls.total() / tokens:8.1f}  calls, in {len(calls)} files:")
    for file, count in calls.most_common():
        print(f"{count / tokens:8.1f}  {file}")
    print("The most frequent moves:")
    for (origin, name), count in moves.most_common(20):
        print(f"{count / tokens:8.1f}  {origin} -> {name}")
    return int(per_token > GOAL)


def counted(tokens: int) -> MoveCounter:
    """Return the counts for an answer of *tokens* tokens."""
    counter = MoveCounter(*(Path(package.__path__[0]) for package in (simcluster, simcluster_backends)))
    with tempfile.TemporaryDirectory() as directory:
        topology = Path(directory) / "two.yaml"
        topology.write_text(TOPOLOGY)
        command = [*ANSWER.split(), str(topology), "--max-tokens", str(tokens)]
        threading.setprofile(counter.profile)
        sys.setprofile(counter.profile)
        try:
            answer = CliRunner().invoke(app, command, catch_exceptions=False)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    if json.loads(answer.stdout)["tokens"] != tokens:
        raise RuntimeError(f"expected an answer of {tokens} tokens, got {answer.stdout}")
    return counter


if __name__ == "__main__":
    sys.exit(main())
