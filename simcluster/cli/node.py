"""The commands `simcluster node` and `simcluster key`: what somebody types at a real node, or what ssh types there."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from simcluster.errors import Problem, UsageError

Coordinator = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Instead of --join: the coordinator that knows of runs, https://HOST:PORT."),
]
TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The coordinator's token; any file of `simcluster key` will do.")
]
PlainHttp = Annotated[
    bool,
    typer.Option(
        "--plain-http", help="Let a coordinator's token cross a network unencrypted; whoever reads it there has it."
    ),
]


def node(
    name: Annotated[str, typer.Argument(metavar="NAME", help="This node's name in the topology file.")],
    join: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where `simcluster run --rendezvous` waits.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The shared key, the same file on every machine.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the other nodes reach this one; by default a free port on loopback, "
            "or with --coordinator at the address from which the run is reached.",
        ),
    ] = None,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    tls: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Speak TLS: this node's files of `simcluster keys init`."),
    ] = None,
    plain_http: PlainHttp = False,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for a coordinator and for a run.")
    ] = 3600.0,
    launched: Annotated[
        bool,
        typer.Option("--launched", hidden=True, help="For launchers: take orders on standard input."),
    ] = False,
) -> None:
    """Join a run on the sockets backend by hand, from this machine."""
    if launched:
        # Before anything large is imported: the launcher waits for an answer.
        agent: Any = importlib.import_module("simcluster_backends.sockets.launcher.remote_agent")
        raise typer.Exit(agent.serve_launcher())
    from simcluster.experiment.join import attend_run, join_run

    if coordinator is not None:
        if join is not None or token_file is None:
            expected = "none beside --coordinator" if join is not None else "it: every call of a coordinator needs it"
            raise UsageError(Problem("--join" if join is not None else "--token-file", join or "nothing", expected))
        raise typer.Exit(attend_run(name, coordinator, token_file, key_file, listen, tls, patience, plain_http))
    if join is None or (key_file is None and tls is None):
        missing = [option for option, value in (("--join", join), ("--key-file", key_file or tls)) if value is None]
        raise UsageError([Problem(option, "nothing", "it, or --coordinator and --token-file") for option in missing])
    raise typer.Exit(join_run(name, join, key_file, listen, tls))


def coordinator(
    token_file: Annotated[
        Path, typer.Option(metavar="FILE", help="The token of every call; any file of `simcluster key` will do.")
    ],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to answer; by default on loopback.")
    ] = "127.0.0.1:52400",
    dead: Annotated[
        float, typer.Option(metavar="SECONDS", help="A worker that is silent for longer is lost; at most 90.")
    ] = 5.0,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name by which it is called. May be given many times."),
    ] = None,
    tls: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Answer over https, with the files of `simcluster keys init`."),
    ] = None,
    plain_http: PlainHttp = False,
) -> None:
    """Run a service at which runs and nodes find each other.

    It tells how far a run is: /status, /history, /metrics, /training/ready.
    """
    from simcluster.experiment.join import coordinate

    def told(url: str) -> None:
        print(f"coordinator at {url}", flush=True)

    coordinate(listen, token_file, dead, allow_host or [], told, tls, plain_http)


keys_app = typer.Typer(help="Certificates for runs over TLS.", no_args_is_help=True, rich_markup_mode=None)


@keys_app.callback()
def _keys() -> None:
    """Certificates for runs over TLS."""
    # With nothing but one command below it, typer would call that one `keys` in place of `keys init`.


@keys_app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to keep them; what is there stays.")],
    topology: Annotated[str, typer.Option(metavar="FILE", help="The topology whose nodes get a certificate each.")],
    nproc_per_node: Annotated[
        int | None, typer.Option("--nproc-per-node", metavar="N", help="For so many processes on every node.")
    ] = None,
    days: Annotated[int, typer.Option(metavar="N", help="How long they are valid.")] = 365,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name or address by which browsers call the coordinator, apart from localhost. "
            "May be given many times.",
        ),
    ] = None,
) -> None:
    """Make an authority of your own and all certificates.

    There is one for each node, the launcher and a coordinator.
    """
    from simcluster.experiment.join import write_certificates

    for path in write_certificates(folder, topology, nproc_per_node, days, host or []):
        print(path)


def key(file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the new key.")]) -> None:
    """Write a new shared key for runs across machines (mode 0600)."""
    from simcluster.experiment.join import write_key

    print(write_key(file))
