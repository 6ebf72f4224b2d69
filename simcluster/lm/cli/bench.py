"""The command `simcluster bench serving`: offer a load to a cluster or server; report latencies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Option

from simcluster.backend import BACKENDS
from simcluster.cli.terminal.complete import one_of
from simcluster.cli.terminal.options import (
    Json,
    KeyFile,
    Rendezvous,
    named,
    named_argument,
    names_of,
    print_json,
    real_options,
)
from simcluster.cli.terminal.show import check_target, write_file
from simcluster.errors import Problem, RunError, UsageError
from simcluster.lm.cli.gaps import print_gaps, print_interval
from simcluster.lm.cli.options import CHUNK_TOKENS, ENGINE_NAMES, MODELS, PLACEMENTS, POLICIES, SERVED_CHUNK_TOKENS
from simcluster.lm.formats import FORMATS
from simcluster.process.loading import torch_loads

if TYPE_CHECKING:
    from simcluster.lm.load.answers import AnsweredRequest
    from simcluster.lm.load.arrivals import OfferedRequest

Outcome: TypeAlias = "tuple[dict[str, Any], list[AnsweredRequest], dict[str, str]]"
"""The server's description as JSON, the answers, and failure kind -> details of the first one."""

CLUSTER, SERVER = "A cluster", "A server"  # headings in the help
NUMERICS = ("none", "real")
FORMS = "N, uniform:LEAST:MOST, geometric:MEAN or lognormal:MEDIAN:SIGMA."
LIMIT_S = 600.0

Served = Annotated[
    str | None, named_argument("FILE", "A topology file or name; none with --url.", names_of("topologies"))
]
Model = Annotated[
    str | None,
    named(
        "NAME|FILE",
        f"{', '.join(MODELS)}, or a file as for `plan`; with --url the server's name of a model.",
        one_of(*MODELS),
    ),
]
Rate = Annotated[float | None, Option(metavar="R", help="Requests per second; inf: all at once. A trace has its own.")]
Requests = Annotated[int, Option(metavar="N", help="The number of requests; of a trace the most.")]
Burstiness = Annotated[
    float, Option(metavar="B", help="1: Poisson; below 1 arrivals come in bursts, above 1 more regularly.")
]
Prompts = Annotated[str, Option(metavar="LENGTH", help=f"The tokens of each prompt: {FORMS}")]
Outputs = Annotated[str, Option(metavar="LENGTH", help=f"The tokens of each answer: {FORMS}")]
TraceFile = Annotated[
    Path | None,
    Option(metavar="FILE", help="Arrivals and lengths from a trace, such as Azure's, BurstGPT's or Mooncake's."),
]
AnswersFile = Annotated[
    Path | None,
    Option(metavar="FILE.csv", help="Write a row for each request: a trace for --trace, and its latencies."),
]
Goodput = Annotated[
    str | None, Option(metavar="NAME:S,...", help="Count requests that meet these seconds: ttft, tpot, e2el.")
]
Seed = Annotated[int, Option(metavar="N", help="The seed of arrivals, lengths and prompts.")]
Backend = Annotated[str | None, named("NAME", "sim, sockets or torch.", one_of(*BACKENDS), CLUSTER)]
Numerics = Annotated[
    str | None,
    named(
        "NAME",
        "none: times alone, of any model (the default of sim); real: the model computes.",
        one_of(*NUMERICS),
        CLUSTER,
    ),
]
PlacementName = Annotated[
    str | None,
    named("NAME|FILE", "auto, alone, pipeline, tensor, replicas, or a file with one.", one_of(*PLACEMENTS), CLUSTER),
]
PolicyName = Annotated[
    str | None,
    named("NAME", f"With replicas, which one gets a request: {', '.join(POLICIES)}.", one_of(*POLICIES), CLUSTER),
]
Weights = Annotated[
    str | None,
    named(
        "FORMAT", f"{', '.join(FORMATS)}: f32 by default; the model's with --numerics none.", one_of(*FORMATS), CLUSTER
    ),
]
Engine = Annotated[
    str | None,
    named("NAME", f"{', '.join(ENGINE_NAMES[:3])}: the program that answers.", one_of(*ENGINE_NAMES[:3]), CLUSTER),
]
Guesses = Annotated[
    int | None, Option(metavar="N", rich_help_panel=CLUSTER, help="Guess up to N tokens per pass from the text so far.")
]
ChunkTokens = Annotated[
    int | None,
    Option(
        metavar="N",
        rich_help_panel=CLUSTER,
        help=f"The most tokens of prompts in one pass through the model: {CHUNK_TOKENS} by default. "
        f"`serve` has {SERVED_CHUNK_TOKENS}.",
    ),
]
Url = Annotated[
    str | None, Option(metavar="URL", rich_help_panel=SERVER, help="A server with OpenAI's API, ours or another.")
]
TokenFile = Annotated[
    Path | None, Option(metavar="FILE", rich_help_panel=SERVER, help="The token that the server asks for.")
]
PlainHttp = Annotated[
    bool, Option("--plain-http", rich_help_panel=SERVER, help="Let the token cross a network unencrypted.")
]
IgnoreEos = Annotated[
    bool, Option("--ignore-eos", rich_help_panel=SERVER, help="Ask for answers that no token ends, as vLLM can.")
]
Timeout = Annotated[
    float | None,
    Option(metavar="S", rich_help_panel=SERVER, help=f"Seconds that a request may take; by default {LIMIT_S:g}."),
]


def serving(
    topology: Served = None,
    model: Model = None,
    rate: Rate = None,
    requests: Requests = 200,
    burstiness: Burstiness = 1.0,
    prompt_tokens: Prompts = "512",
    output_tokens: Outputs = "128",
    trace: TraceFile = None,
    goodput: Goodput = None,
    out: AnswersFile = None,
    seed: Seed = 0,
    backend: Backend = None,
    numerics: Numerics = None,
    placement: PlacementName = None,
    policy: PolicyName = None,
    weights: Weights = None,
    engine: Engine = None,
    guesses: Guesses = None,
    chunk_tokens: ChunkTokens = None,
    rendezvous: Rendezvous = None,
    key_file: KeyFile = None,
    url: Url = None,
    token_file: TokenFile = None,
    plain_http: PlainHttp = False,
    ignore_eos: IgnoreEos = False,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Offer requests to a served model and measure latencies.

    Time to the first token (TTFT), per output token (TPOT), between tokens (ITL), end to end (E2EL), throughput and
    goodput: in the simulator, on real nodes, or of a server at a URL.
    """
    from simcluster.lm.load.load_options import LoadOptions, collected, objectives_of
    from simcluster.lm.load.metrics import figures
    from simcluster.lm.load.table import lines
    from simcluster.lm.load.trace import written_trace

    of_cluster = {"backend": backend, "numerics": numerics, "placement": placement, "policy": policy,
                  "weights": weights, "engine": engine, "guesses": guesses, "chunk_tokens": chunk_tokens,
                  "rendezvous": rendezvous, "key_file": key_file}  # fmt: skip
    of_server = {"token_file": token_file, "plain_http": plain_http, "ignore_eos": ignore_eos, "timeout": timeout}
    problems = _problems(topology, url, model, of_server if url is None else of_cluster, timeout)
    options = LoadOptions(rate, requests, burstiness, prompt_tokens, output_tokens, trace, seed)
    objectives = collected(problems, lambda: objectives_of(goodput)) if goodput is not None else None
    load = collected(problems, options.read)
    target = collected(problems, lambda: check_target(out)) if out is not None else None
    if problems or load is None:
        raise UsageError(problems)
    if url is not None:
        outcome = _on_server(url, str(model), of_server, load.requests, seed)
    else:
        outcome = _on_cluster(str(topology), str(model), of_cluster, load.requests, seed)
    about, answers, details = outcome
    if target is not None:
        write_file(target, written_trace(answers, str(model)))
    found = figures(answers, objectives)
    if as_json:
        offered = {"load": options.to_dict() | {"read_as": load.words or None}}
        print_json(about | offered | found.to_dict() | {"details": details})
    else:
        guessed = [f"trace: {load.words}"] if load.words else []
        if about.get("proposed"):
            guessed.append(f"guesses: {about['accepted']:,} of {about['proposed']:,} were right")
        print(*lines(found), *guessed, *(f"{kind}: {why}" for kind, why in details.items()), sep="\n")
    if not found.completed:
        raise RunError("no request was answered: " + ", ".join(found.errors))


def _problems(
    topology: str | None, url: str | None, model: str | None, others: dict[str, Any], timeout: float | None
) -> list[Problem]:
    """Return the problems of the options that choose what serves.

    *others* are the options that this choice excludes: those of a cluster if *url* is given, else
    those of a server.
    """
    problems = []
    if (topology is None) == (url is None):
        found = "neither a topology nor --url" if url is None else f"{topology} and --url"
        problems.append(Problem("bench serving", found, "one of them: what shall serve"))
    if model is None:
        problems.append(Problem("--model", "nothing", f"{', '.join(MODELS)} or a file; with --url a name"))
    choice = "--url" if url is None else "a topology instead of --url"
    problems += [
        Problem(f"--{name.replace('_', '-')}", str(value), f"it with {choice}")
        for name, value in others.items()
        if value is not None and value is not False
    ]
    if timeout is not None and not 0 < timeout <= 86_400:
        problems.append(Problem("--timeout", f"{timeout:g}", "seconds, above 0 and at most 86,400"))
    return problems


def _on_cluster(
    topology: str, model: str, options: dict[str, Any], load: Sequence[OfferedRequest], seed: int
) -> Outcome:
    with torch_loads():
        from simcluster.lm.serving.bench import BenchTarget, bench_cluster
        from simcluster.topology import load as read

    backend = options["backend"] or "sim"
    numerics = options["numerics"] or ("none" if backend == "sim" else "real")
    cluster = read(topology)
    chunk = CHUNK_TOKENS if options["chunk_tokens"] is None else options["chunk_tokens"]
    guesses = options["guesses"] or 0
    policy, engine = options["policy"], options["engine"] or ENGINE_NAMES[0]
    served = BenchTarget(
        model, backend, options["placement"] or "auto", options["weights"], policy, chunk, guesses, engine, numerics
    )
    nodes = real_options(backend, rendezvous=options["rendezvous"], key_file=options["key_file"])
    found = bench_cluster(served, cluster, load, seed, nodes)
    print_gaps(cluster, [str(node["node"]) for node in found.nodes()], backend)
    if backend == "sim":
        print_interval(found.cluster.layout, len(load), engine)
    about = {
        "topology": cluster.name,
        "model": model,
        "backend": backend,
        "numerics": numerics,
        "engine": engine,
        "placement": found.cluster.layout.kind,
        "chunk_tokens": chunk,
        "nodes": found.nodes(),
        "proposed": found.cluster.proposed,
        "accepted": found.cluster.accepted,
    }
    return about, found.answers, found.details


def _on_server(url: str, model: str, options: dict[str, Any], load: Sequence[OfferedRequest], seed: int) -> Outcome:
    from simcluster.lm.serving.client.client import load_on
    from simcluster.lm.serving.client.endpoint import endpoint_of

    endpoint = endpoint_of(url, model, options["token_file"], options["plain_http"], options["ignore_eos"])
    is_seen = sys.stderr.isatty()  # do not write progress to a log file

    def show_progress(done: int) -> None:
        if is_seen:
            print(f"\r{done:,} of {len(load):,} requests", end="\n" if done == len(load) else "", file=sys.stderr)

    found = asyncio.run(load_on(endpoint, load, seed, options["timeout"] or LIMIT_S, show_progress))
    return {"url": endpoint.url, "model": model, "late_s": found.late_s}, found.answers, found.details
