"""The interface of the backends, and the only module that loads a backend.

A backend is a package in `simcluster_backends` with a module `entry`, which has an instance BACKEND
of one of the classes below. A new backend must also be added to BACKENDS.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.event_order import EventOrder
    from simcluster.runs.record import RunRecord
    from simcluster.topology import Topology
    from simcluster.topology.plain_flows import PlainFlow
    from simcluster.web.requests import App

BACKENDS = ("sim", "sockets", "torch")


class Backend(ABC):
    """A backend, which runs jobs."""

    @abstractmethod
    def run_cluster(self, job: ClusterJob) -> RunRecord:
        """Run *job* until it ends, and return its record, which has an `error` if the job failed.

        Before anything starts, raise UsageError with all problems of the request.
        """

    @abstractmethod
    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise UsageError with each of *options* that is invalid for every job."""


class Simulator(Backend):
    """The backend in virtual time. It can also run parts of a job, and replay the run of a real
    one.

    *module* names the module that takes longest to import, so that a process that will run jobs can
    import it early.
    """

    module: ClassVar[str]

    @abstractmethod
    def run_bodies(self, bodies: Sequence[Callable[[Any], Any]], topology: Topology, seed: int = 0) -> list[Any]:
        """Run each of *bodies*, an `async def body(node)`, as one node.

        Return, for each rank, the result of its body or the exception that ended it.
        """

    @abstractmethod
    def replay(self, job: ClusterJob, orders: Sequence[EventOrder]) -> RunRecord:
        """Replay *job*: the events of each node happen in its recorded order, one of *orders*."""

    @abstractmethod
    def run_recorded(self, job: ClusterJob, work: Sequence[Sequence[tuple[str, float]]]) -> RunRecord:
        """Run *job* with the recorded *work* of each node, a list of (name, seconds) in order."""

    @abstractmethod
    def finish_times(
        self, topology: Topology, flows: Sequence[PlainFlow], model: str | None = None, seed: int = 0
    ) -> list[float]:
        """Return the arrival time in seconds of each of *flows*; infinity if it never arrives.

        *model* is the name of a network model; by default it is the topology's.
        """


class PageServer(Protocol):
    """A web server that runs in its own thread."""

    page_url: str

    def start(self) -> object: ...
    def run(self) -> object: ...
    def close(self) -> object: ...


class RealNodes(Backend):
    """The backend that runs nodes as processes, also on other machines.

    It can also examine the machines, let nodes join a run, and serve web pages.
    """

    @abstractmethod
    def get_ready(self) -> None:
        """Start slow preparations for a job in the background, without waiting for them."""

    @abstractmethod
    def show_report(self, job: ClusterJob, report: Path) -> None:
        """Send the *report* of *job*, which has ended, to the coordinator of the run."""

    @abstractmethod
    def examine(self, topology: Topology, timeout_s: float, ssh_config: str | None, ssh: Sequence[str]) -> list[Any]:
        """Return one row for each worker of *topology*: what its machine has, and what is
        missing.
        """

    @abstractmethod
    def serve_pages(
        self,
        listen: str,
        app_for: Callable[[Collection[str]], App],
        hosts: Sequence[str],
        tls: str | None,
        plain_http: bool,
        key: str,
        connections: int | None = None,
    ) -> PageServer:
        """Return a server that serves an application at *listen*, under the coordinator's security
        rules.

        Raise UsageError about the option *key* if these rules forbid *listen*.
        """

    @abstractmethod
    def join(
        self, name: str, rendezvous: str, key_file: Path | None, listen: str | None, tls: str | None
    ) -> Callable[[], int]:
        """Return a function that runs node *name* in the run that a launcher offers at
        *rendezvous*.

        The function returns an exit code. Without *key_file*, only TLS protects the run.
        """

    @abstractmethod
    def attend(
        self,
        name: str,
        coordinator: str,
        token_file: Path,
        key_file: Path | None,
        listen: str | None,
        tls: str | None,
        patience_s: float,
        plain_http: bool,
    ) -> Callable[[], int]:
        """Return a function that runs node *name* in every run that *coordinator* lists, one after
        another.

        The function returns an exit code.
        """

    @abstractmethod
    def serve_launcher(self) -> int:
        """Obey a launcher's orders from standard input until it is closed, and return the exit
        code.
        """

    @abstractmethod
    def coordinate(
        self,
        listen: str,
        token_file: Path,
        dead_s: float,
        hosts: Sequence[str],
        told: Callable[[str], object],
        tls: str | None = None,
        plain_http: bool = False,
        login: bool = False,
    ) -> None:
        """Run a coordinator at *listen* until it is interrupted.

        The callback *told* gets each line that the user should see.
        """

    @abstractmethod
    def write_new_key(self, file: Path) -> None:
        """Write a new shared key to *file*. Raise UsageError if the file exists."""

    @abstractmethod
    def make_certificates(self, folder: Path, names: Sequence[str], days: int, hosts: Sequence[str]) -> Sequence[Path]:
        """Write the certificates of a certificate authority (CA) and of all nodes to *folder*, and
        return the paths.
        """

    @abstractmethod
    def read_token(self, file: Path) -> str:
        """Return the token in *file*. Raise UsageError if the file does not hold a valid token."""


def backend_named(name: str) -> Backend:
    """Return the backend named *name*, one of BACKENDS."""
    return cast(Backend, importlib.import_module(f"simcluster_backends.{name}.entry").BACKEND)


def simulator() -> Simulator:
    """Return the backend `sim`."""
    return cast(Simulator, backend_named("sim"))


def real_nodes() -> RealNodes:
    """Return the backend `sockets`."""
    return cast(RealNodes, backend_named("sockets"))
