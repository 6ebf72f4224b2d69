"""The command `simcluster generate`: one answer of a language model that is spread over a cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from simcluster.cli.terminal.complete import one_of
from simcluster.cli.terminal.options import (
    Json,
    KeyFile,
    Rendezvous,
    Ssh,
    SshConfig,
    TopologyFile,
    named,
    names_of,
    print_json,
    real_options,
    start_early,
)
from simcluster.lm.cli.gaps import interval_of, print_format, print_gaps, print_interval
from simcluster.lm.cli.options import (
    CHUNK_TOKENS,
    ENGINE_NAMES,
    MODELS,
    ChunkTokens,
    Engine,
    Guesses,
    PlacementName,
    Weights,
)
from simcluster.process.loading import torch_loads

if TYPE_CHECKING:
    from simcluster.lm.serving.run import ServingResult

ModelName = Annotated[
    str,
    named(
        "NAME|FILE|RUN",
        "smollm2, a name of `list models`, a .gguf or .safetensors file, or the folder of a run that trained one. With "
        "--prompt-tokens also 7b, 8b, 70b, or a config.json.",
        one_of(*MODELS),
    ),
]
Prompt = Annotated[str | None, Option(metavar="TEXT", help="The text to answer.")]
PromptTokens = Annotated[
    int | None, Option(metavar="N", help="Only times, for a prompt of N tokens: nothing is computed.")
]
Raw = Annotated[bool, Option("--raw", help="Continue the text; by default, answer it as a user's message.")]
BackendName = Annotated[
    str, named("NAME", "sim, sockets, or torch, which prints the text at its end.", names_of("backends"))
]
MostTokens = Annotated[int, Option(metavar="N", help="The most tokens of the answer.")]
Temperature = Annotated[float, Option(metavar="T", help="0 takes the likeliest token.")]
TopK = Annotated[int, Option(metavar="K", help="Choose among the K likeliest tokens; 0: all.")]
TopP = Annotated[float, Option(metavar="P", help="Choose among the likeliest with this share together.")]
Seed = Annotated[int, Option(metavar="N", help="The seed of the choice.")]


def generate(
    topology: TopologyFile,
    model: ModelName,
    prompt: Prompt = None,
    prompt_tokens: PromptTokens = None,
    raw: Raw = False,
    backend: BackendName = "sim",
    placement: PlacementName = "auto",
    max_tokens: MostTokens = 128,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    guesses: Guesses = 0,
    chunk_tokens: ChunkTokens = CHUNK_TOKENS,
    weights: Weights = None,
    engine: Engine = ENGINE_NAMES[0],
    rendezvous: Rendezvous = None,
    key_file: KeyFile = None,
    ssh: Ssh = True,
    ssh_config: SshConfig = None,
    as_json: Json = False,
) -> None:
    """Answer a prompt with a language model spread over a cluster.

    The text is streamed; the same seed gives the same tokens on every backend and placement.
    """
    options = real_options(backend, rendezvous=rendezvous, key_file=key_file, ssh=ssh, ssh_config=ssh_config)
    start_early(backend, options)
    with torch_loads():
        from simcluster.lm.request import Sampling
        from simcluster.lm.serving.extended import answer_timed
        from simcluster.lm.serving.request_options import RequestOptions, setup_of
        from simcluster.lm.serving.run import answer_all
        from simcluster.lm.text.tokens import Detokenizer
        from simcluster.topology import load

    sampling = Sampling(temperature, top_k, top_p, seed)
    request = RequestOptions(model, backend, placement, weights, None, chunk_tokens, guesses, engine,
                             prompt, prompt_tokens, max_tokens, sampling, raw)  # fmt: skip
    cluster = load(topology)
    setup, file = setup_of(request, cluster)
    text: list[str] = []
    words = None
    if file is not None and file.tokenizer is not None:
        words = Detokenizer(file.tokenizer, begins=file.chat is not None and not raw)

    def show(_: str, token: int) -> None:
        if words is not None and token not in setup.requests[0].ends:  # do not print end tokens
            text.append(words.push(token))
            if not as_json:
                print(text[-1], end="", flush=True)

    if request.is_timed:
        found = answer_timed(setup, cluster, seed)
    else:
        found = answer_all(setup, cluster, backend=backend, seed=seed, options=options, on_token=show)
    if words is not None:
        text.append(words.end())
    if as_json:
        answer = _as_dict(found, "".join(text) if words is not None else None)
        print_json(answer | _intervals(found, backend, engine))
        return
    if text:
        print(text[-1])
    print(_in_words(found), file=sys.stderr)  # keep standard output for the answer
    print_format(cluster, setup.precision, backend)
    print_gaps(cluster, [node.node for node in found.nodes], backend)
    if backend == "sim":
        print_interval(found.layout, 1, engine)


def _as_dict(found: ServingResult, text: str | None) -> dict[str, Any]:
    (answer,) = found.answers.values()
    return {
        "text": text,
        "token_ids": None if answer.sha256 is None else list(answer.tokens),
        "token_ids_sha256": answer.sha256,
        "finish_reason": answer.reason,
        "tokens": len(answer.tokens),
        "ttft_s": answer.ttft_s,
        "tpot_s": answer.tpot_s,
        "proposed": found.proposed,
        "accepted": found.accepted,
        "placement": found.layout.kind,
        "lost": dict(found.lost),
        "nodes": [
            {
                "node": node.node,
                "layers": node.layers,
                "weight_bytes": int(node.weight_bytes),
                "cache_bytes": int(node.cache_bytes),
                "busy_s": node.busy_s,
                "bytes_sent": node.sent_bytes,
                "peak_memory_bytes": int(node.peak_memory_bytes),
                "empty_memory_bytes": int(node.empty_memory_bytes),
            }
            for node in found.nodes
        ],
    }


def _intervals(found: ServingResult, backend: str, engine: str) -> dict[str, Any]:
    """Return the ranges of the simulated times, for JSON.

    They are None for measured times, and that of the time per token for an answer of one token.
    """
    from simcluster.lm.plan.intervals import ttft_factors

    (answer,) = found.answers.values()
    interval = interval_of(found.layout, 1, engine)
    factors = {"ttft_s": ttft_factors(found.layout.kind), "tpot_s": (1 / interval.high, 1 / interval.low)}
    ranges: dict[str, list[float] | None] = {}
    for name, ends in factors.items():
        time_s = getattr(answer, name) if backend == "sim" else None
        ranges[f"{name}_interval"] = None if time_s is None else [time_s * end for end in ends]
    return ranges


def _in_words(found: ServingResult) -> str:
    from simcluster.units import format_latency

    (answer,) = found.answers.values()
    pace = "" if answer.tpot_s is None else f", then one per {format_latency(answer.tpot_s)}"
    first = "" if answer.ttft_s is None else f"; the first after {format_latency(answer.ttft_s)}{pace}"
    guesses = f"; {found.accepted} of {found.proposed} guesses were right" if found.proposed else ""
    nodes = ", ".join(f"{node.node} ({node.layers} layers)" for node in found.nodes)
    return f"{len(answer.tokens)} tokens{first}{guesses}; {found.layout.kind}: {nodes}"
