"""Ctrl-C where work does not listen: algorithms that swallow it, threads that compute for ever, a second press."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.levels import sample_of
from tests.support.socket_runs import wait_for
from tools.interrupts.processes import Command
from tools.interrupts.trial import ABORTS

SWALLOWS = """
async def swallows(node, replica):
    print("spinning", flush=True)
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""

REFUSES_TO_END = """
import asyncio

async def refuses(node, replica):
    print("spinning", flush=True)
    while True:
        try:
            await asyncio.sleep(1.0)
        except BaseException:
            while node.rank == 1:
                pass
"""

COMPUTES = """
from simcluster import FREE

def forever():
    print("spinning", flush=True)
    while True:
        pass

async def computes(node, replica):
    await node.compute(forever, cost=FREE)
"""


def ends(command: Command, folder: Path, *, presses: int = 1) -> None:
    """Interrupt *command* once it spins, and hold it to its end: 130, a sentence, and no process left."""
    try:
        wait_for(lambda: command.has_ended or "spinning" in (folder / "out.txt").read_text())
        for _ in range(presses):
            assert not command.has_ended, command.said()
            command.press()
            time.sleep(0.6 if presses > 1 else 0.0)  # a second one that follows sooner is the same one
        assert command.code(60.0) == 130, command.said()
        assert command.said().splitlines()[-1] == "interrupted"
        assert not ABORTS.search(command.said()), command.said()
        assert command.left(30.0) == {}
    finally:
        command.close()


def begun(code: str, name: str, backend: str, folder: Path) -> Command:
    (folder / "own.py").write_text(code)
    (folder / "own.yaml").write_text(
        "topology: {name: pair, nodes: {a: {device: mac-mini-m4}, b: {device: mac-mini-m4}}, "
        "links: [{between: [a, b], type: thunderbolt-5}]}\n"
        f"algorithm: {{path: own.py:{name}}}\nworkload: quadratic\nstop: {{steps: 5}}\n"
    )
    return Command(["run", "own.yaml", "--backend", backend, "--no-report", "--out", "out"], folder)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "name"), sample_of([(REFUSES_TO_END, "refuses"), (SWALLOWS, "swallows")], 2))
def test_ctrl_c_ends_a_simulated_algorithm_that_swallows_it(code: str, name: str, tmp_path: Path) -> None:
    ends(begun(code, name, "sim", tmp_path), tmp_path)


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    ends(begun(SWALLOWS, "swallows", "sim", tmp_path), tmp_path, presses=2)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sim", "torch"])
def test_ctrl_c_ends_a_command_whose_device_computes_for_ever(backend: str, tmp_path: Path) -> None:
    ends(begun(COMPUTES, "computes", backend, tmp_path), tmp_path)
