"""Nodes that a real ssh starts at a real sshd: a run, a refusal, and what is left when the launcher dies."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from simcluster_backends.sockets import write_key
from simcluster_backends.sockets.launcher import remote_machine
from simcluster_backends.sockets.launcher.logs import Logs
from simcluster_backends.sockets.launcher.machine_messages import (
    Fingerprint,
    MachineReport,
    StartOrder,
    fingerprint,
    line_of,
)
from simcluster_backends.sockets.launcher.node_handle import NodeHandle
from simcluster_backends.sockets.launcher.remote_machine import Remotes
from simcluster_backends.sockets.net.certificates import make_certificates
from simcluster_backends.sockets.net.ssh import Ssh
from simcluster_backends.sockets.wire.keys import key_of

import simcluster
from simcluster.errors import LaunchFailed
from simcluster.job import Remote
from tests.support.cells import Cells
from tests.support.socket_runs import ROOT, gone, wait_for
from tests.support.sshd import Sshd

KEY = bytes(range(100, 132))

OWN = """
import os
from pathlib import Path
from beside import told

print("own code is", __file__, flush=True)

async def mine(node, replica, *, folder: str) -> None:
    Path(folder, f"{node.name}.pid").write_text(str(os.getpid()))
    for step, batch in enumerate(replica.batches(), start=1):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        node.record(step=step, loss=loss)
        if node.name == "shelf_1" and not Path(folder, "died").exists():
            Path(folder, "died").touch()
            print("about to die", flush=True)
            os.kill(os.getpid(), 9)
    await node.send(1 - node.rank, "trained", None)  # each needs the other to have trained
    await node.recv(1 - node.rank, "trained")
    print(told, node.name, flush=True)
    if Path(folder, "stay").exists():
        await node.recv(1 - node.rank, "never")
"""


@dataclass
class Shelf:
    """An experiment with own code, on one machine with two processes, whose Python has a name that shells dislike."""

    folder: Path
    experiment: Path
    options: dict[str, object]

    def pids(self) -> list[int]:
        """Of both nodes, and of who started them over there."""
        files = [self.folder / f"shelf_{number}.pid" for number in (0, 1)]
        pids = wait_for(lambda: all(file.exists() and file.read_text() for file in files)) and [
            int(file.read_text()) for file in files
        ]
        return pids + [parent.pid for parent in psutil.Process(pids[0]).parents()[:2]]


@pytest.fixture
def shelf(server: Sshd, tmp_path: Path) -> Shelf:
    python = tmp_path / 'my $(touch owned) py\'thon "3"'
    python.write_text(f'#!/bin/sh\ncd /\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    code = tmp_path / "code"
    code.mkdir()
    (code / "own.py").write_text(OWN)
    (code / "beside.py").write_text("told = 'told by'\n")
    topology = {
        "name": "shelf",
        "launch": {"python": str(python), "nproc_per_node": 2},
        "nodes": {"shelf": {"flops": "1 GFLOP/s", "ssh": server.host}},
    }
    experiment = {
        "topology": topology,
        "algorithm": {"path": "own.py:mine", "folder": str(tmp_path)},
        "workload": "quadratic",
        "stop": {"steps": 3},
    }
    (code / "e.yaml").write_text(yaml.safe_dump(experiment))
    return Shelf(tmp_path, code / "e.yaml", {"ssh_config": str(server.config)})


def with_secrets(shelf: Shelf) -> list[bytes]:
    """Gives *shelf*'s runs TLS and a coordinator; returns everything that nobody may ever read anywhere else."""
    secrets = shelf.folder / "secrets"
    make_certificates(secrets, ["shelf_0", "shelf_1"], 1)
    write_key(secrets / "token", KEY)
    shelf.options |= {"tls": str(secrets), "coordinator": "127.0.0.1:0", "token_file": str(secrets / "token")}
    keys = [path.read_bytes().splitlines()[1] for path in secrets.glob("*.key")]
    made = key_of(KEY.hex())
    return [*keys, KEY.hex().encode(), KEY, made, made.hex().encode()]


@pytest.mark.slow
def test_a_run_over_ssh_restarts_is_told_of_by_name_equals_the_simulated_one_and_leaves_nothing(shelf: Shelf) -> None:
    said: list[tuple[str, str]] = []
    secrets = with_secrets(shelf)
    run = simcluster.run(
        shelf.experiment,
        backend="sockets",
        out=shelf.folder / "run",
        report=False,
        options={**shelf.options, "max_restarts": 1},
        on_output=lambda name, line: said.append((name, line)),
    )
    (restart,) = run.summary["restarts"]
    assert restart["begins_again"] == "the start"
    assert "rank 1 (shelf_1) is lost" in restart["error"]
    assert ("shelf_1", "about to die") in said
    assert {("shelf_0", "told by shelf_0"), ("shelf_1", "told by shelf_1")} <= set(said)
    places = {line.removeprefix("own code is ") for _, line in said if line.startswith("own code is ")}
    assert all("simcluster-" in place and place.endswith(str(shelf.folder / "code" / "own.py")) for place in places)
    assert not any(Path(place).exists() for place in places), "the folder over there is gone"
    assert "told by shelf_1" in (shelf.folder / "run" / "logs" / "shelf_1.log").read_text()
    assert not list(Path.home().glob("owned")), "no shell has read the name of the Python"
    simulated = simcluster.run(shelf.experiment, out=shelf.folder / "sim", report=False)
    assert run.summary["weights_sha256"] == simulated.summary["weights_sha256"]
    contents = {path: path.read_bytes() for path in shelf.folder.rglob("*") if path.is_file()}
    told = {path.name: content for path, content in contents.items() if path.parent.name != "secrets"}
    told["terminal"] = str(said).encode()
    assert "summary.json" in told
    assert [(name, secret) for name, content in told.items() for secret in secrets if secret in content] == []


@pytest.mark.slow
def test_a_cells_functions_reach_another_machine_with_what_they_name(server: Sshd, shelf: Shelf) -> None:
    cells = Cells(
        "import torch\nfrom simcluster import Workload\nfrom simcluster.workloads import sgd\n"
        "weights = torch.arange(24.0).reshape(8, 3)\n",
        "def told(node):\n    print('told by', node.name, __file__, flush=True)\n",
        "async def mine(node, replica):\n"
        "    told(node)\n"
        "    for step, batch in enumerate(replica.batches(), start=1):\n"
        "        cost = replica.gradient_cost(batch)\n"
        "        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=cost)\n"
        "        await node.compute(replica.apply, gradients, cost=replica.apply_cost())\n"
        "        node.record(step=step, loss=loss)\n",
        "def make(*, lr: float = 0.01):\n"
        "    loss = torch.nn.functional.mse_loss\n"
        "    return Workload(lambda: torch.nn.Linear(3, 1), loss, (weights, weights[:, :1]), sgd(lr), 2)\n",
    )
    said: list[tuple[str, str]] = []
    runs = [
        simcluster.run(
            topology=yaml.safe_load(shelf.experiment.read_text())["topology"],
            algorithm=cells.mine,
            workload=cells.make,
            stop={"steps": 3},
            backend=backend,
            out=shelf.folder / backend,
            report=False,
            options=shelf.options if backend == "sockets" else {},
            on_output=lambda name, line: said.append((name, line)),
        )
        for backend in ("sockets", "sim")
    ]
    assert runs[0].summary["weights_sha256"] == runs[1].summary["weights_sha256"]
    places = [line.rpartition(" ")[2] for _, line in said if line.startswith("told by")]
    assert len(places) == 2
    assert all("simcluster-" in place and "/files/" in place and place.endswith("/mine.py") for place in places)
    assert not any(Path(place).exists() for place in places)


@pytest.mark.slow
def test_a_launcher_that_is_killed_leaves_no_process_and_no_file_behind(shelf: Shelf) -> None:
    for name in ("died", "stay"):
        (shelf.folder / name).touch()
    command = [sys.executable, "-m", "simcluster", "run", str(shelf.experiment), "--backend", "sockets"]
    command += ["--out", str(shelf.folder / "run"), "--ssh-config", str(shelf.options["ssh_config"])]
    write_key(shelf.folder / "key", KEY)
    command += ["--key-file", str(shelf.folder / "key")]
    log = (shelf.folder / "launcher").open("wb")
    with log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True) as launcher:
        pids = shelf.pids()
        below = psutil.Process(launcher.pid).children(recursive=True)
        shown = [[*process.cmdline(), *process.environ().values()] for process in [*below, *map(psutil.Process, pids)]]
        launcher.send_signal(signal.SIGKILL)
    assert len(pids) == 4
    wait_for(lambda: all(map(gone, pids)))
    wait_for(lambda: not any(process.is_running() for process in below))
    said = (shelf.folder / "launcher").read_text()
    (place,) = {
        line.partition("own code is ")[2].split("/files/")[0] for line in said.splitlines() if "_0 | own" in line
    }
    wait_for(lambda: not Path(place).exists())
    assert KEY.hex() not in said + str(shown)
    files = [path for path in shelf.folder.rglob("*") if path.is_file() and path.name != "key"]
    assert [path for path in files if KEY.hex().encode() in path.read_bytes() or KEY in path.read_bytes()] == []


def test_machines_that_cannot_take_part_are_all_named_each_with_all_its_reasons(server: Sshd, tmp_path: Path) -> None:
    here = fingerprint()
    files = {**here.files, "simcluster/cli/app.py": "other"}
    report = line_of(MachineReport(Fingerprint({**here.versions, "torch": "1.0"}, files)))
    (tmp_path / "report").write_bytes(b"Welcome to the shelf!\n" + report)
    commands = {
        "old": ["sh", "-c", 'cat "$0"; cat >/dev/null', str(tmp_path / "report")],
        "bare": ["/no such/simcluster"],
    }
    nodes = {name: {"flops": "1 GFLOP/s", "ssh": server.host, "command": words} for name, words in commands.items()}
    nodes["strange"] = {"flops": "1 GFLOP/s", "ssh": f"nobody@{server.host}"}
    links = [
        {"between": [a, b], "bandwidth": "1 Gbps", "latency": "1 ms"} for a, b in (("old", "bare"), ("bare", "strange"))
    ]
    with pytest.raises(LaunchFailed) as error:
        simcluster.run(
            topology={"nodes": nodes, "links": links},
            algorithm="all_reduce_dp",
            workload="quadratic",
            stop={"steps": 1},
            backend="sockets",
            options={"ssh_config": str(server.config)},
            out=tmp_path / "run",
            report=False,
        )
    assert "3 of 3 machines cannot take part" in str(error.value)
    old, bare, strange = error.value.reasons
    torch = here.versions["torch"]
    assert old == f"old (ssh {server.host}) differs: torch 1.0, here {torch}; other code in simcluster/cli/app.py"
    assert "bare (ssh shelf) ended with exit code 127 before it was ready" in bare
    assert "strange (ssh nobody@shelf) ended with exit code 255" in strange
    assert "Permission denied" in strange
    assert (tmp_path / "run" / "logs" / "old.log").read_text() == "Welcome to the shelf!\n"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["error"]["type"] == "LaunchFailed"


def test_a_host_whose_key_is_not_known_is_not_talked_to(server: Sshd, tmp_path: Path) -> None:
    options = {"ssh_config": str(server.strange), "ssh_options": ["StrictHostKeyChecking=no"]}
    with pytest.raises(LaunchFailed, match="Host key verification failed"):
        simcluster.run(
            topology={"nodes": {"a": {"flops": "1 GFLOP/s", "ssh": server.host}}},
            algorithm="all_reduce_dp",
            workload="quadratic",
            stop={"steps": 1},
            backend="sockets",
            options=options,
            out=tmp_path / "run",
            report=False,
        )


# the same conversation with a machine that the test plays itself

MACHINE = """#!{python}
import os, sys, time
with open(__file__ + ".pid", "w") as file:
    file.write(str(os.getpid()))
sys.path.insert(0, {root!r})
from simcluster_backends.sockets.launcher.machine_messages import fingerprint
from simcluster_backends.sockets.launcher.machine_messages import MachineReport, OutputLine, ProcessExit, StartOrder
from simcluster_backends.sockets.launcher.machine_messages import line_of, read_to_machine

def say(message):
    sys.stdout.buffer.write(line_of(message))
    sys.stdout.flush()

print("x" * 3_000_000)  # a greeting without an end
say(MachineReport(fingerprint()))
for line in sys.stdin.buffer:
    message = read_to_machine(line)
    name = message.nodes[0].name if isinstance(message, StartOrder) else message.node
    say(OutputLine(name, getattr(message, "name", "an order")))
    if not isinstance(message, StartOrder) and message.name == "SIGKILL":
        say(ProcessExit(name, -9))
{ending}
"""


def converse(tmp_path: Path, ending: str = "") -> tuple[list[str], list[tuple[str, int | None]]]:
    """(what the machine said, who exited how) of a node that is paused, let go on, and killed."""
    program = tmp_path / "ssh"
    program.write_text(MACHINE.format(python=sys.executable, root=str(ROOT), ending=ending))
    program.chmod(0o755)
    said: list[str] = []
    exits: list[tuple[str, int | None]] = []

    async def talk() -> None:
        member = NodeHandle(0, "a", remote=Remote("anybody"))
        started = Remotes(
            Ssh(program=str(program)),
            lambda member, code: exits.append((member.name, code)),
            Logs(None),
            lambda name, line: said.append(line),
        )
        await started.start([member], lambda group, places: StartOrder("127.0.0.1:1", "", places, {}, {}))
        for name in ("SIGSTOP", "SIGCONT", "SIGKILL"):
            started.signal(member, name)  # type: ignore[arg-type]
        while not member.exited:
            await asyncio.sleep(0.01)
        started.signal(member, "SIGKILL")  # it is not there any more: nothing is said
        await started.close()

    asyncio.run(talk())
    return said, exits


def test_orders_reach_a_machine_one_by_one_and_its_greeting_is_no_message(tmp_path: Path) -> None:
    said, exits = converse(tmp_path)
    greeting = [line for line in said if line.startswith("x")]
    assert sum(map(len, greeting)) == 3_000_000
    assert [line for line in said if not line.startswith("x")] == ["an order", "SIGSTOP", "SIGCONT", "SIGKILL"]
    assert exits == [("a", -9)]


def test_an_ssh_that_does_not_end_when_its_input_does_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_machine, "CLOSE_S", 0.2)
    converse(tmp_path, "time.sleep(3600)")
    assert gone(int((tmp_path / "ssh.pid").read_text()))


@pytest.mark.slow
def test_an_ssh_that_is_not_there_is_told(tmp_path: Path) -> None:
    async def start() -> None:
        found = Remotes(Ssh(program=str(tmp_path / "no-ssh")), lambda member, code: None, Logs(None), None)
        await found.start(
            [NodeHandle(0, "a", remote=Remote("x"))], lambda group, places: StartOrder("", "", places, {}, {})
        )

    with pytest.raises(LaunchFailed, match="cannot be started: No such file"):
        asyncio.run(start())
