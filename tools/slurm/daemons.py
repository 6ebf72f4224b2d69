"""A Slurm of one node and two partitions on this machine: munged, slurmctld and slurmd.

Their files are in a temporary folder, and they listen on loopback only. There is no systemd, no
cgroup and no accounting. When this process ends in any way, the kernel kills the daemons.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

PACKAGES = ("slurm-wlm", "munge")
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "setpriv")
CPUS = 2
PATIENCE_S = 60.0
CONFIGURATION = """\
ClusterName=simcluster
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName=localhost NodeAddr=127.0.0.1 CPUs={cpus}
PartitionName=short Nodes=localhost Default=YES MaxTime=30
PartitionName=long Nodes=localhost MaxTime=INFINITE
"""


class NotThere(Exception):
    """An error that says why Slurm cannot run on this machine."""


def install() -> None:
    """Install the missing packages, which needs root and apt-get.

    Raise NotThere with the missing packages if this is not possible.
    """
    missing = _missing()
    if not missing:
        return
    apt = shutil.which("apt-get")
    if apt is None or not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise NotThere(f"no {', '.join(missing)} here: as root, apt-get install {' '.join(PACKAGES)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([apt, "update", "-qq"], env=quiet, check=False)
    done = subprocess.run([apt, "install", "-qq", "-y", "--no-install-recommends", *PACKAGES], env=quiet, check=False)
    # Installing the packages made systemd start other daemons.
    if Path("/run/systemd/system").is_dir():
        subprocess.run(["systemctl", "disable", "--now", "munge", "slurmctld", "slurmd"], check=False)
    if done.returncode or (missing := _missing()):
        raise NotThere(f"no {', '.join(missing)} here, and apt-get install {' '.join(PACKAGES)} did not bring it")


def _missing() -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


@contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """Run a cluster until the end of the block.

    Yield the environment in which Slurm's commands reach it.

    Raise NotThere if the cluster does not start, and AssertionError if a process is left at the
    end.
    """
    if os.geteuid() != 0:
        raise NotThere("munged, slurmctld and slurmd need root")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        folder.chmod(0o755)
        _write_files(folder)
        environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
        stack.callback(_assert_nothing_runs, folder)
        munge = ["munged", "--foreground", f"--key-file={folder}/key", f"--socket={folder}/munge.socket"]
        munge += [f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/seed"]
        stack.enter_context(_daemon(folder, munge, environment))
        _until((folder / "munge.socket").exists, folder)
        stack.enter_context(_daemon(folder, ["slurmctld", "-D"], environment))
        _until(lambda: "UP" in said(environment, "scontrol", "ping"), folder)
        stack.enter_context(_daemon(folder, ["slurmd", "-D", "-N", "localhost"], environment))
        _until(lambda: said(environment, "sinfo", "--noheader", "--format=%P %t").split()[1::2] == ["idle"] * 2, folder)
        stack.callback(_cancel_all, environment)
        yield environment


def said(environment: dict[str, str], *command: str) -> str:
    """Return the output of *command*."""
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def _write_files(folder: Path) -> None:
    (folder / "key").write_bytes(secrets.token_bytes(128))
    (folder / "key").chmod(0o400)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        ports = [free.getsockname()[1] for free in (one, other)]
    text = CONFIGURATION.format(folder=folder, ports=ports, cpus=CPUS)
    (folder / "slurm.conf").write_text(text, encoding="utf-8")


@contextmanager
def _daemon(folder: Path, command: list[str], environment: dict[str, str]) -> Iterator[None]:
    """Run *command* in the foreground until the end of the block, out of reach of Ctrl-C."""
    with (folder / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()


def _cancel_all(environment: dict[str, str]) -> None:
    said(environment, "scancel", "--user=root")
    with suppress(NotThere):
        _until(lambda: not said(environment, "squeue", "--noheader").strip())


def _until(condition: Callable[[], bool], folder: Path | None = None) -> None:
    """Wait until *condition* is true.

    Raise NotThere with the daemons' logs if that takes too long.
    """
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until_s:
            logs = sorted(folder.glob("*.log")) if folder is not None else []
            raise NotThere("\n".join(["Slurm does not start", *(log.read_text(errors="replace") for log in logs)]))
        time.sleep(0.1)


def _assert_nothing_runs(folder: Path) -> None:
    """Kill every process with a command or an environment that names *folder*.

    Raise AssertionError if there is one.
    """
    left = [process for process in psutil.process_iter() if process.pid != os.getpid() and _names(process, folder)]
    found = [f"{process.pid} {process.name()}" for process in left]
    for process in left:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    assert not found, f"still running: {', '.join(found)}"


def _names(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(str(folder) in text for text in (*process.cmdline(), *process.environ().values()))
    except psutil.Error:
        return False
