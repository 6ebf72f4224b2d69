"""The `simcluster` command. Its exit code is 0 for success, 1 for a failed run, 2 for misuse."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from simcluster.cli import data
from simcluster.cli.commands import CommandLine
from simcluster.cli.doctor import doctor
from simcluster.cli.new import new, schema
from simcluster.cli.node import coordinator, key, keys_app, node
from simcluster.cli.run import EXAMPLES, resume, run
from simcluster.cli.terminal.complete import words_of_bash
from simcluster.cli.terminal.help import CLUSTERS, NODES, RESULTS, RUNS, START, WIDTH, HelpGroup
from simcluster.cli.terminal.logs import ReportedExit, logged
from simcluster.cli.terminal.options import Json, named_argument, names_of, print_json, with_defaults
from simcluster.cli.terminal.show import wrapped
from simcluster.cli.topology import SUMMARY, add_topology_commands, flows, import_
from simcluster.cli.torchrun import SETTINGS, torchrun
from simcluster.errors import MOST_PROBLEMS, RunError, UsageError, WrittenElsewhere, listed, on_command_line
from simcluster.paths.last_run import each_once
from simcluster.process.exits import INTERRUPTED
from simcluster.process.installed import NO_TORCH
from simcluster.process.terminal import make_visible
from simcluster.wings import WINGS, open_door, wing_commands

app = typer.Typer(
    name="simcluster",
    help="Write a distributed-training algorithm once. Simulate it on the cluster you don't have. Run it on yours.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=HelpGroup,
    context_settings=WIDTH,
    epilog="""\b
Examples:
  simcluster new mine                             a project to begin with
  simcluster run quickstart                       in the simulator
  simcluster run quickstart --backend sockets     on processes of this machine
  simcluster run --help                           what a command can do""",
    # Plain text fits narrow terminals and pipes, and starts in half the time.
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line; turn errors of simcluster.errors into messages and exit codes."""
    with on_command_line():
        _main()


def _main() -> None:
    _open_streams()
    make_visible()
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()  # flush now: a full disk can still be reported here
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO, errno.EPIPE):
            raise
        # Python flushes again at exit, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"error: cannot write the output: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print(f"error: {NO_TORCH}", file=sys.stderr)
        raise SystemExit(2) from None
    except UsageError as error:
        lines = listed(error.problems)
        for line in lines[:MOST_PROBLEMS]:
            print(f"error: {line}", file=sys.stderr)
        if len(lines) > MOST_PROBLEMS:
            print(f"error: and {len(lines) - MOST_PROBLEMS:,} more", file=sys.stderr)
        raise SystemExit(2) from None
    except WrittenElsewhere:
        raise SystemExit(0) from None
    except RunError as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        notes = getattr(error, "__notes__", [])
        frames = [note for note in notes if note.startswith("  File ")]
        for frame in frames:
            print(frame, file=sys.stderr)
        if error.seed is not None:
            print(f"seed: {error.seed}", file=sys.stderr)
        if error.folder is not None:
            print(f"run folder: {error.folder}", file=sys.stderr)
        for note in notes[len(frames) :]:
            print(note, file=sys.stderr)
        raise SystemExit(1) from None
    except SystemExit as end:
        # typer turns a KeyboardInterrupt into a silent exit.
        if end.code == INTERRUPTED and not isinstance(end, ReportedExit):
            print("interrupted", file=sys.stderr)
        raise


def _run() -> None:
    """Run the typed command. For a wrong option or argument, print a problem and exit with 2."""
    try:
        with words_of_bash(os.environ):
            code = app(standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            raise SystemExit(error.exit_code) from None
        from simcluster.cli.terminal.misuse import help_of, misuse_of

        print(f"error: {misuse_of(error)}", help_of(error), sep="\n", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    if isinstance(code, int) and code:
        raise SystemExit(code)


def _open_streams() -> None:
    """Open the null device for closed standard streams; otherwise files could get their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _version(wanted: bool) -> None:
    if wanted:
        from simcluster.version import __version__

        print(f"simcluster {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


def compare(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="Run folders; each is compared to the first.")],
    as_json: Json = False,
) -> None:
    """Show where runs differ, in words and numbers."""
    from simcluster.results import compare as compare_runs
    from simcluster.results import load_run

    runs = each_once(runs)
    if len(runs) < 2:
        raise UsageError("runs", str(len(runs)), "at least two run folders")
    comparisons = [compare_runs(load_run(runs[0]), load_run(other)) for other in runs[1:]]
    if as_json:
        print_json([comparison.to_dict() for comparison in comparisons])
        return
    print("\n\n".join(comparison.describe() for comparison in comparisons))
    reports = [path / "report.html" for path in runs if (path / "report.html").is_file()]
    if reports:
        print("\nreports:", *reports, sep="\n  ")


def list_(
    kind: Annotated[
        str | None,
        named_argument(
            "KIND",
            "algorithms, workloads, topologies, generators, experiments, links, devices, backends or models.",
            names_of("kinds"),
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List known names: algorithms, workloads, topologies, ...

    `list models` also lists the models on this machine: those of Hugging Face's hub, LM Studio and Ollama.
    """
    from simcluster.catalogue import KINDS, catalogue, fields
    from simcluster.spelling import nearest

    if kind is not None and kind not in KINDS:
        raise UsageError("kind", repr(kind), f"a kind: {nearest(kind, KINDS)}")
    kinds = [name for name in KINDS if kind in (None, name)]
    # The headers of local models take seconds, so they are only read on request.
    if as_json:
        local = {"local_models": open_door("local_rows")()} if kind == "models" else {}
        print(json.dumps({name: fields(name) for name in kinds} | local, indent=2, allow_nan=False))
        return
    found = {name: catalogue(name) for name in kinds}
    for name, entries in found.items():
        print(f"{name}:")
        for entry, words in entries.items():
            print(wrapped(f"  {entry:<22} {words}".rstrip()))
    if kind == "models":
        print(*open_door("local_table")(), sep="\n")


def _add_commands(commands: CommandLine) -> None:
    """Add the commands of the core, then those of the wings."""
    commands.add(RUNS, logged("run")(with_defaults(run, by_sets=True)), epilog=EXAMPLES)
    commands.add(RUNS, logged("run")(with_defaults(torchrun, by_sets=True)), settings=SETTINGS)
    commands.add(RUNS, logged("run")(with_defaults(resume, by_sets=True)))
    commands.add(START, new)
    commands.add(START, list_, "list")
    commands.add(START, with_defaults(doctor))
    commands.add(START, schema)
    data.add_data_commands(commands.family("data", START, data.SUMMARY))
    commands.add(RESULTS, compare)
    add_topology_commands(commands.family("topology", CLUSTERS, SUMMARY))
    commands.add(CLUSTERS, with_defaults(flows))
    commands.add(CLUSTERS, with_defaults(import_), "import")
    commands.add(NODES, logged("node")(node))
    commands.add(NODES, logged("coordinator")(coordinator))
    commands.add(NODES, key)
    app.add_typer(keys_app, name="keys", rich_help_panel=NODES)
    for wing in WINGS:
        wing_commands(wing)(commands)


_add_commands(CommandLine(app))
