"""Options and arguments that several commands share, with their completions."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from typer import Argument, Option

from simcluster.backend import real_nodes
from simcluster.cli.terminal.complete import mapping_in, one_of, set_keys
from simcluster.cli.terminal.help import NODES, OUTPUT
from simcluster.documents.limits import MOST_WHOLE
from simcluster.errors import Problem, UsageError, raise_all

Completion = Callable[..., list[str]]
Command = TypeVar("Command", bound=Callable[..., None])


def names_of(kind: str) -> Completion:
    def complete(incomplete: str) -> list[str]:
        from simcluster.catalogue import files, names

        return names(kind) + (files(incomplete) if kind in ("experiments", "topologies") else [])

    return complete


def named(metavar: str, help: str, names: Completion | None, panel: str | None = None) -> Any:
    """Return an option whose value *names* completes, if given; `--help` shows it in *panel*."""
    return Option(metavar=metavar, help=help, autocompletion=names, rich_help_panel=panel)


def real(help: str, *flags: str, metavar: str | None = None) -> Any:
    """Return an option that applies only to real nodes; `--help` shows it in their panel."""
    return Option(*flags, metavar=metavar, help=help, rich_help_panel=NODES)


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
    real("Wait here for nodes started by hand with `simcluster node`.", metavar="HOST:PORT"),
]
KeyFile = Annotated[Path | None, real("The shared key; required off loopback.", metavar="FILE")]

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
        "portable=true: the same bits on different x86-64 CPUs; "
        "shortcuts=false: message by message, to the same results. May be repeated.",
    ),
]


Ssh = Annotated[
    bool,
    real("Start nodes with `ssh` in the topology by ssh, all others on this machine."),
]
SshConfig = Annotated[Path | None, real("An ssh configuration file (ssh -F).", metavar="FILE")]
SshOptions = Annotated[
    list[str] | None,
    real("One more -o for ssh. May be repeated.", "--ssh-option", metavar="KEY=VALUE"),
]
Tmux = Annotated[bool, real("Show each node in a pane of a tmux session.", "--tmux")]
Processes = Annotated[
    int | None,
    real("The number of processes per node, each of them a rank.", "--nproc-per-node", metavar="N"),
]
Restarts = Annotated[
    int | None,
    real("The most restarts after losing a node, from the last checkpoint or else from the start.", metavar="N"),
]
Coordinator = Annotated[
    str | None,
    real(
        "Serve the run's progress at HOST:PORT, or report it to a coordinator at https://HOST:PORT.",
        metavar="HOST:PORT|URL",
    ),
]
TokenFile = Annotated[
    Path | None,
    real("The coordinator's token; any file from `simcluster key`.", metavar="FILE"),
]
TlsFolder = Annotated[
    Path | None,
    real("Use TLS, with the files from `simcluster keys init`.", "--tls", metavar="FOLDER"),
]
ServeTls = Annotated[
    Path | None, Option("--tls", metavar="FOLDER", help="Serve https, with the files from `simcluster keys init`.")
]
AllowHost = Annotated[
    list[str] | None, Option(metavar="NAME", help="Another name under which it is reached. May be repeated.")
]
PlainHttp = Annotated[bool, real("Let the coordinator's token cross a network unencrypted.", "--plain-http")]


def _real_nodes(
    *,
    rendezvous: Rendezvous = None,
    key_file: KeyFile = None,
    ssh: Ssh = True,
    ssh_config: SshConfig = None,
    ssh_options: SshOptions = None,
    tmux: Tmux = False,
    max_restarts: Restarts = None,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    tls: TlsFolder = None,
    plain_http: PlainHttp = False,
) -> None: ...


def print_json(value: Any) -> None:
    """Print *value*, the whole output of a command with `--json`."""
    print(json.dumps(value, indent=2))


def on_real_nodes(command: Command) -> Command:
    """Return *command* with `_real_nodes`' options in place of its `**nodes`; see `real_options`."""
    return taking(command, command, _real_nodes)


def _defaults(
    *,
    device: Annotated[
        str | None,
        named("NAME", "The device of nodes without one: a preset, or {flops: 1 TFLOP/s}.", names_of("devices")),
    ] = None,
    bandwidth: Annotated[str | None, Option(metavar="RATE", help="The bandwidth of links without one.")] = None,
    latency: Annotated[str | None, Option(metavar="TIME", help="The one-way latency of links without one.")] = None,
) -> None: ...


def with_defaults(command: Command, *, by_sets: bool = False) -> Command:
    """Return *command* with the options above, for every topology that it reads from a file.

    With *by_sets*, they also join the command's overrides of an experiment, which reach other processes.
    """

    @functools.wraps(command)
    def call(*args: Any, device: str | None = None, bandwidth: str | None = None, latency: str | None = None,
             **rest: Any) -> None:  # fmt: skip
        options = {"device": device, "bandwidth": bandwidth, "latency": latency}
        given = {key: value for key, value in options.items() if value is not None}
        if not given:
            command(*args, **rest)
            return
        if by_sets:
            rest["sets"] = [
                *(rest.get("sets") or ()),
                *(f"topology.defaults.{key}={one}" for key, one in given.items()),
            ]
        elif rest.get("topology", "") is None:
            raise UsageError(
                f"--{next(iter(given))}", "it without a topology", "a topology whose nodes and links it is for"
            )
        from simcluster.topology.read.defaults import defaults_for_files

        with defaults_for_files(given):
            command(*args, **rest)

    return taking(cast("Command", call), command, _defaults)


def taking(command: Command, *functions: Callable[..., None]) -> Command:
    """Set the signature of *command*, for typer, to the parameters of all *functions*.

    Leave out `*args` and `**kwargs`, and return *command*.
    """
    found = [one for function in functions for one in inspect.signature(function, eval_str=True).parameters.values()]
    own = [one for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in own}
    return command


def real_options(backend: str | None, **given: Any) -> dict[str, Any]:
    """Return the options in *given* that are set, as backend options.

    Raise UsageError for options that do not apply to *backend*.

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
    """Return *experiment*, or the experiment that runs *script* or *module*.

    For a script or module, *experiment* and *rest* are its arguments. Raise UsageError unless
    exactly one of the three is given.
    """
    if script is not None and module is not None:
        raise UsageError("--module", f"{module}, and --script {script}", "one of the two")
    if script is not None or module is not None:
        program = {"module": module} if script is None else {"file": str(Path(script).absolute())}
        args = [*([experiment] if experiment is not None else ()), *rest]
        if experiment is not None and _is_experiment(experiment):
            expected = "one of the two: an experiment names its script in the block `script`"
            raise UsageError("EXPERIMENT", f"{experiment}, and --script or --module", expected)
        return {"script": {**program, "args": args, **({"pass_local_rank": True} if pass_local_rank else {})}}
    if experiment is None:
        raise UsageError("EXPERIMENT", "nothing", "an experiment file, the name of a shipped one, or --script FILE")
    if rest or pass_local_rank:
        found = "--pass-local-rank" if pass_local_rank else f"{experiment} and {' '.join(rest)}"
        raise UsageError("EXPERIMENT", found, "one; arguments belong to --script")
    return experiment


def _is_experiment(name: str) -> bool:
    """Return whether *name*, the first argument of a script, is the file of an experiment."""
    if not name.endswith((".yaml", ".yml")) or not Path(name).is_file():
        return False
    data = mapping_in("experiments", name)
    return "topology" in data and bool({"algorithm", "script"} & data.keys())


def backend_named(experiment: Any, backend: str | None) -> str | None:
    """Return *backend*, or the backend that *experiment* names.

    Return None if *experiment* cannot be read: that is reported later.
    """
    if backend is not None:
        return backend
    data = experiment if isinstance(experiment, Mapping) else mapping_in("experiments", experiment)
    return str(data.get("backend") or "sim") if data else None


def start_early(backend: str | None, given: Mapping[str, Any]) -> None:
    """Start the process that forks nodes, while this process imports torch.

    Do nothing unless the backend is sockets, without a meeting place at which nodes join by hand.
    """
    if backend == "sockets" and not {"rendezvous", "coordinator"} & given.keys():
        real_nodes().get_ready()


def overrides(sets: Sequence[str] | None, flag: str = "--set") -> dict[str, Any]:
    """Return dotted key -> value from *sets*, the "KEY=VALUE" strings of the option *flag*.

    Raise UsageError, with all problems, for malformed strings.
    """
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
