"""The door to the backends: what the library asks of them, and the only place that loads one.

A backend is a package in `simcluster_backends` with a module `entry`, whose BACKEND is one of the classes here. A new
one needs its name in BACKENDS.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, cast

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.event_order import EventOrder
    from simcluster.runs.record import RunRecord
    from simcluster.topology import Topology
    from simcluster.topology.plain_flows import PlainFlow
    from simcluster.web.requests import App

BACKENDS: Final = ("sim", "sockets", "torch")


class Backend(ABC):
    """Where a job runs."""

    @abstractmethod
    def run_cluster(self, job: ClusterJob) -> RunRecord:
        """Run *job* to its end; return its record, which has an `error` if it failed.

        Raise UsageError, listing every problem of the request, before anything starts.
        """

    @abstractmethod
    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise UsageError listing every one of *options* that is invalid for any job."""


class Simulator(Backend):
    """The backend in virtual time. It can also run parts of a job, or run a real one again.

    *module*: what takes long to import, for processes that will run jobs.
    """

    module: ClassVar[str]

    @abstractmethod
    def run_bodies(self, bodies: Sequence[Callable[[Any], Any]], topology: Topology, seed: int = 0) -> list[Any]:
        """Run each of *bodies*, an `async def body(node)`, as a node; return results or exceptions, by rank."""

    @abstractmethod
    def replay(self, job: ClusterJob, orders: Sequence[EventOrder]) -> RunRecord:
        """Run *job* in the recorded *orders* of events, one for each node."""

    @abstractmethod
    def run_recorded(self, job: ClusterJob, work: Sequence[Sequence[tuple[str, float]]]) -> RunRecord:
        """Run *job* with the recorded *work* of each node: names and seconds of its pieces, in order."""

    @abstractmethod
    def finish_times(
        self, topology: Topology, flows: Sequence[PlainFlow], model: str | None = None, seed: int = 0
    ) -> list[float]:
        """Return when each of *flows* arrives, in seconds, inf for never; *model* defaults to the topology's."""


class PageServer(Protocol):
    """A server of pages in a thread of its own."""

    page_url: str

    def start(self) -> object: ...
    def run(self) -> object: ...
    def close(self) -> object: ...


class RealNodes(Backend):
    """The backend of processes on machines: it can also examine those, let nodes join, and serve pages."""

    @abstractmethod
    def get_ready(self) -> None:
        """Begin what takes long before a job can start, and return."""

    @abstractmethod
    def show_report(self, job: ClusterJob, report: Path) -> None:
        """Send the *report* of *job*, which has ended, to the coordinator that the job reported to."""

    @abstractmethod
    def examine(self, topology: Topology, timeout_s: float, ssh_config: str | None, ssh: Sequence[str]) -> list[Any]:
        """Return a row for each worker of *topology*: what its machine has, and what it lacks for a run."""

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
        """Return a server of an application under the coordinator's rules. Raise UsageError, naming *key*."""

    @abstractmethod
    def join(
        self, name: str, rendezvous: str, key_file: Path | None, listen: str | None, tls: str | None
    ) -> Callable[[], int]:
        """Return what takes part as node *name* in the run of the launcher at *rendezvous*, and returns an exit code.

        Without *key_file* the run has TLS alone.
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
        """Return what takes part as node *name* in the runs that the *coordinator* lists, one after another."""

    @abstractmethod
    def serve_launcher(self) -> int:
        """Take a launcher's orders on standard input until it ends; return the exit code."""

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
        """Run a coordinator at *listen* until it is interrupted."""

    @abstractmethod
    def write_new_key(self, file: Path) -> None:
        """Write a new shared key to *file*. Raise UsageError if that is there."""

    @abstractmethod
    def make_certificates(self, folder: Path, names: Sequence[str], days: int, hosts: Sequence[str]) -> Sequence[Path]:
        """Write an authority's and all nodes' certificates to *folder*; return the paths."""

    @abstractmethod
    def read_token(self, file: Path) -> str:
        """Return the token in *file*. Raise UsageError if it is none."""


def backend_named(name: str) -> Backend:
    """Return the backend with that *name*, one of BACKENDS."""
    return cast(Backend, importlib.import_module(f"simcluster_backends.{name}.entry").BACKEND)


def simulator() -> Simulator:
    """Return the backend `sim`."""
    return cast(Simulator, backend_named("sim"))


def real_nodes() -> RealNodes:
    """Return the backend `sockets`."""
    return cast(RealNodes, backend_named("sockets"))
