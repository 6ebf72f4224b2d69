"""The entry point of the backend `sockets`. It imports large modules only when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.backend import PageServer, RealNodes
from simcluster_backends import sockets

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.record import RunRecord
    from simcluster.topology import Topology
    from simcluster.web.requests import App


class SocketsEntry(RealNodes):
    """The backend of real nodes: processes that talk over TCP."""

    def run_cluster(self, job: ClusterJob) -> RunRecord:
        return sockets.run_cluster(job)

    def check_options(self, options: Mapping[str, Any]) -> None:
        from simcluster_backends.common.options import check
        from simcluster_backends.sockets.launcher.settings import BACKEND, SocketOptions

        check(SocketOptions, options, BACKEND)

    def get_ready(self) -> None:
        sockets.get_ready()

    def show_report(self, job: ClusterJob, report: Path) -> None:
        from simcluster_backends.sockets.launcher.reporting import show_report

        show_report(job, report)

    def examine(self, topology: Topology, timeout_s: float, ssh_config: str | None, ssh: Sequence[str]) -> list[Any]:
        from simcluster_backends.sockets.doctor import doctor

        return list(doctor(topology, timeout_s, ssh_config, ssh))

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
        from simcluster_backends.sockets.launcher.reporting import serving

        return serving(listen, app_for, hosts, tls, plain_http, key, connections)

    def join(
        self, name: str, rendezvous: str, key_file: Path | None, listen: str | None, tls: str | None
    ) -> Callable[[], int]:
        key = sockets.read_key(key_file) if key_file is not None else sockets.OPEN_KEY
        from simcluster_backends.sockets.node.process import join

        return partial(join, name, rendezvous, key, *([listen] if listen else []), tls=tls)

    def attend(self, *place: Any) -> Callable[[], int]:
        from simcluster_backends.sockets.node.attend import attend_with_files

        return partial(attend_with_files, *place)

    def serve_launcher(self) -> int:
        from simcluster_backends.sockets.launcher.remote_agent import serve_launcher

        return serve_launcher()

    def coordinate(self, *place: Any) -> None:
        from simcluster_backends.sockets.launcher.reporting import coordinate

        coordinate(*place)

    def write_new_key(self, file: Path) -> None:
        sockets.write_key(file, sockets.generate_key())

    def make_certificates(self, folder: Path, names: Sequence[str], days: int, hosts: Sequence[str]) -> Sequence[Path]:
        from simcluster_backends.sockets.net.certificates import make_certificates

        return list(make_certificates(folder, names, days, hosts))

    def read_token(self, file: Path) -> str:
        from simcluster_backends.sockets.wire.keys import read_token

        return read_token(file)


BACKEND = SocketsEntry()
