"""Arguments shared by several commands, and names that a shell completes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from simcluster.backend import real_nodes
from simcluster.cli.terminal.complete import one_of, set_keys
from simcluster.cli.terminal.help import NODES, OUTPUT
from simcluster.documents.limits import MOST_WHOLE
from simcluster.errors import Problem, UsageError, raise_all

Completion = Callable[..., list[str]]


def names_of(kind: str) -> Completion:
    def complete(incomplete: str) -> list[str]:
        from simcluster.catalogue import files, names

        found = [name for name in names(kind) if name.startswith(incomplete)]
        return found + (files(incomplete) if kind in ("experiments", "topologies") else [])

    return complete


def named(metavar: str, help: str, names: Completion | None, panel: str | None = None) -> Any:
    """Return an option whose value a shell completes from *names*, if any; `--help` shows it in *panel*."""
    return Option(metavar=metavar, help=help, autocompletion=names, rich_help_panel=panel)


def named_argument(metavar: str, help: str, names: Completion) -> Any:
    return Argument(metavar=metavar, help=help, autocompletion=names)


TopologyFile = Annotated[str, named_argument("FILE", "A topology file or name.", names_of("topologies"))]
NetworkSeed = Annotated[
    int, Option("--seed", metavar="N", min=0, max=MOST_WHOLE, help="Of jitter, losses and background traffic.")
]
Json = Annotated[bool, Option("--json", help="Print only JSON.", rich_help_panel=OUTPUT)]
Report = Annotated[bool, Option(help="Write report.html (2 MB).", rich_help_panel=OUTPUT)]
Watch = Annotated[
    bool,
    Option("--watch", help="Show nodes, rates, links and stragglers live; only in a terminal.", rich_help_panel=OUTPUT),
]
Jobs = Annotated[int | None, Option(metavar="N", help="Parallel processes; by default one per core.")]
_ENGINES = one_of("local", "dask", "slurm")
Engine = Annotated[str, named("NAME", "local, dask, dask=ADDRESS or slurm.", _ENGINES)]
FirstSeed = Annotated[int | None, Option(metavar="N", help="The first seed.")]
Sets = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one key, e.g. algorithm.pull_interval=4 or topology.links.pi5-mini1.bandwidth='100 Mbps'. "
        "May be repeated.",
        autocompletion=set_keys,
    ),
]
Rendezvous = Annotated[
    str | None,
    Option(
        metavar="HOST:PORT", rich_help_panel=NODES, help="Wait here for nodes started by hand with `simcluster node`."
    ),
]
KeyFile = Annotated[
    Path | None, Option(metavar="FILE", rich_help_panel=NODES, help="The shared key; required off loopback.")
]

ExperimentFile = Annotated[
    str, named_argument("EXPERIMENT", "An experiment file, or the name of a shipped one.", names_of("experiments"))
]
ExperimentOrArgument = Annotated[
    str | None,
    named_argument("[EXPERIMENT]", "An experiment file, or the name of a shipped one.", names_of("experiments")),
]
ScriptArguments = Annotated[list[str] | None, Argument(metavar="[-- ARGS]", help="With --script: its arguments.")]
Script = Annotated[str | None, Option(metavar="FILE", help="A torch.distributed program to run as it is.")]
Module = Annotated[str | None, Option("-m", "--module", metavar="NAME", help="The same by the name of its module.")]
PassLocalRank = Annotated[
    bool, Option("--pass-local-rank", help="With a script: give it --local-rank=N, as torch.distributed.launch does.")
]
BackendName = Annotated[str | None, named("NAME", "sim (the default), sockets or torch.", names_of("backends"))]
OtherTopology = Annotated[
    str | None, named("FILE", "A topology file or name that replaces the experiment's.", names_of("topologies"))
]
OtherAlgorithm = Annotated[
    str | None,
    named(
        "NAME",
        "An algorithm, or file.py:function, with its defaults, that replaces the experiment's.",
        names_of("algorithms"),
    ),
]
OtherWorkload = Annotated[
    str | None,
    named(
        "NAME",
        "A workload, or file.py:function, with its defaults, that replaces the experiment's.",
        names_of("workloads"),
    ),
]
Compute = Annotated[
    str | None,
    named(
        "NAME",
        "What every node computes on: cpu, cuda, cuda:N, mps, or auto for an accelerator, if there is one.",
        one_of("auto", "cpu", "cuda", "mps"),
    ),
]
BackendOptions = Annotated[
    list[str] | None,
    Option(
        "--option",
        metavar="KEY=VALUE",
        help="A setting of the backend, e.g. threads=2 (sim): compute in two threads; "
        "limit_s=600 or loop_s=900 (sockets): timeouts of the run; "
        "portable=true: the same bits on different x86-64 CPUs. May be repeated.",
    ),
]


Ssh = Annotated[
    bool,
    Option(rich_help_panel=NODES, help="Start nodes with `ssh` in the topology by ssh, all others on this machine."),
]
SshConfig = Annotated[
    Path | None, Option(metavar="FILE", rich_help_panel=NODES, help="An ssh configuration file (ssh -F).")
]
SshOptions = Annotated[
    list[str] | None,
    Option("--ssh-option", metavar="KEY=VALUE", rich_help_panel=NODES, help="One more -o for ssh. May be repeated."),
]
Tmux = Annotated[bool, Option("--tmux", rich_help_panel=NODES, help="Show each node in a pane of a tmux session.")]
Processes = Annotated[
    int | None,
    Option(
        "--nproc-per-node",
        metavar="N",
        rich_help_panel=NODES,
        help="The number of processes per node, each of them a rank.",
    ),
]
Restarts = Annotated[
    int | None,
    Option(
        metavar="N",
        rich_help_panel=NODES,
        help="The most restarts after losing a node, from the last checkpoint or else from the start.",
    ),
]
Coordinator = Annotated[
    str | None,
    Option(
        metavar="HOST:PORT|URL",
        rich_help_panel=NODES,
        help="Serve the run's progress at HOST:PORT, or report it to a coordinator at https://HOST:PORT.",
    ),
]
TokenFile = Annotated[
    Path | None,
    Option(metavar="FILE", rich_help_panel=NODES, help="The coordinator's token; any file from `simcluster key`."),
]
TlsFolder = Annotated[
    Path | None,
    Option(
        "--tls", metavar="FOLDER", rich_help_panel=NODES, help="Use TLS, with the files from `simcluster keys init`."
    ),
]
ServeTls = Annotated[
    Path | None, Option("--tls", metavar="FOLDER", help="Serve https, with the files from `simcluster keys init`.")
]
AllowHost = Annotated[
    list[str] | None, Option(metavar="NAME", help="Another name under which it is reached. May be repeated.")
]
PlainHttp = Annotated[
    bool, Option("--plain-http", rich_help_panel=NODES, help="Let the coordinator's token cross a network unencrypted.")
]


def real_options(backend: str | None, **given: Any) -> dict[str, Any]:
    """Return those of *given* that are set, as backend options. Raise UsageError if they do not apply to *backend*.

    `max_restarts` applies to the simulator, too, so that restarts can be tried there first.
    """
    said = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value is not None and value is not (name == "ssh") and value != []
    }
    if backend not in ("sockets", None) and said:
        flags = {name: f"--{name.replace('_', '-')}" for name in said} | {
            "ssh": "--no-ssh",
            "ssh_options": "--ssh-option",
        }
        problems = [
            Problem(flags[name], f"an option of real nodes on {backend}", "--backend sockets")
            for name in said
            if name != "max_restarts" or backend != "sim"
        ]
        raise_all(problems)
    return said


def script_or_experiment(
    experiment: str | None,
    rest: Sequence[str],
    script: str | None = None,
    module: str | None = None,
    *,
    pass_local_rank: bool = False,
) -> Any:
    """Return the experiment of a command: that of *script* or *module*, with all others as arguments, or *experiment*.

    Raise UsageError if there is none, or more than one.
    """
    if script is not None and module is not None:
        raise UsageError(Problem("--module", f"{module}, and --script {script}", "one of the two"))
    if script is not None or module is not None:
        program = {"module": module} if script is None else {"file": str(Path(script).absolute())}
        args = [*([experiment] if experiment is not None else ()), *rest]
        if experiment is not None and _is_experiment(experiment):
            expected = "one of the two: an experiment names its script in the block `script`"
            raise UsageError(Problem("EXPERIMENT", f"{experiment}, and --script or --module", expected))
        return {"script": {**program, "args": args, **({"pass_local_rank": True} if pass_local_rank else {})}}
    if experiment is None:
        raise UsageError(
            Problem("EXPERIMENT", "nothing", "an experiment file, the name of a shipped one, or --script FILE")
        )
    if rest or pass_local_rank:
        found = "--pass-local-rank" if pass_local_rank else f"{experiment} and {' '.join(rest)}"
        raise UsageError(Problem("EXPERIMENT", found, "one; arguments belong to --script"))
    return experiment


def _is_experiment(name: str) -> bool:
    """Return whether the first argument of a script names a file that is an experiment: it has a topology."""
    from simcluster.documents.yaml import load

    if not name.endswith((".yaml", ".yml")) or not Path(name).is_file():
        return False
    try:
        data = load(Path(name)).data
    except UsageError:
        return False
    return isinstance(data, dict) and "topology" in data and bool({"algorithm", "script"} & data.keys())


def backend_named(experiment: Any, backend: str | None) -> str | None:
    """Return *backend*, or that of the file of *experiment*; None if it cannot be read, which is reported later."""
    from simcluster.documents.shipped import find
    from simcluster.documents.yaml import load

    if backend is not None:
        return backend
    if isinstance(experiment, Mapping):
        return str(experiment.get("backend") or "sim")
    try:
        data = load(find("experiments", experiment)).data
    except UsageError:
        return None
    return str(data.get("backend") or "sim") if isinstance(data, dict) else None


def start_early(backend: str | None, given: Mapping[str, Any]) -> None:
    """Let the sockets backend start what forks nodes while this process imports torch, if nodes may be started here."""
    if backend == "sockets" and not {"rendezvous", "coordinator"} & given.keys():
        real_nodes().get_ready()


def overrides(sets: Sequence[str] | None, flag: str = "--set") -> dict[str, Any]:
    """Return {dotted key: value} of *flag*'s "KEY=VALUE" texts. Raise UsageError with all that are malformed."""
    from simcluster.documents.yaml import parse_value

    found: dict[str, Any] = {}
    problems = []
    for text in sets or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            problems.append(Problem(flag, repr(text), "KEY=VALUE"))
            continue
        try:
            found[name.strip()] = parse_value(value)
        except UsageError as error:
            problems += [
                Problem(f"{flag} {name}", repr(value) + (f" ({wrong.found})" if wrong.found else ""), wrong.expected)
                for wrong in error.problems
            ]
    raise_all(problems)
    return found
