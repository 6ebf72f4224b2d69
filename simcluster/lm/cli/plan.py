"""The command `simcluster plan`: where a language model should run, before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Context, Option

from simcluster.cli.terminal.complete import one_of
from simcluster.cli.terminal.options import Json, TopologyFile, named
from simcluster.errors import Problem, UsageError
from simcluster.lm.cli.options import MODELS
from simcluster.lm.formats import FORMATS, format_of
from simcluster.wings import open_door

ANSWERING, TRAINING = (
    ("requests", "prompt_tokens", "output_tokens", "weights", "parts"),
    ("batch_size", "sample_tokens"),
)
"""The options of plans without and with --training."""


def plan(
    context: Context,
    topology: TopologyFile,
    model: Annotated[
        str,
        named(
            "NAME|FILE",
            f"{', '.join(MODELS)}, a config.json, .safetensors or .gguf file, or a folder; only headers are read.",
            one_of(*MODELS),
        ),
    ],
    requests: Annotated[
        int, Option(metavar="N", help="The requests at once, which get a ranking besides that for one.")
    ] = 8,
    prompt_tokens: Annotated[
        int | None, Option(metavar="N", help="The tokens of each prompt: 512, or what the model's context leaves.")
    ] = None,
    output_tokens: Annotated[
        int | None, Option(metavar="N", help="The tokens of each answer: 128, or a quarter of the context.")
    ] = None,
    weights: Annotated[
        str | None,
        named(
            "FORMAT",
            f"{', '.join(FORMATS)}; by default the file's, and bf16 for a preset (smollm2: f32).",
            one_of(*FORMATS),
        ),
    ] = None,
    parts: Annotated[
        Path | None, Option(metavar="FILE", help="Purchasable parts with prices, instead of the shipped list.")
    ] = None,
    training: Annotated[
        bool, Option("--training", help="Rank algorithms that train the model, not placements for requests.")
    ] = False,
    batch_size: Annotated[
        int | None,
        Option(metavar="N", help="With --training: the samples of a step on all nodes together; by default 4 each."),
    ] = None,
    sample_tokens: Annotated[int, Option(metavar="N", help="With --training: the tokens of each sample.")] = 1024,
    as_json: Json = False,
) -> None:
    """Rank the placements of a language model, or with --training the ways to train it, before anything is loaded.

    One node, pipelines, tensor parallelism and replicas, for one request and for many: tokens/s, time to the first
    token, memory per node, what is left out and why, what to buy.
    """
    _refuse(context, ANSWERING if training else TRAINING, f"{'' if training else 'with '}--training")
    if training:
        _plan_training(topology, model, batch_size, sample_tokens, as_json)
        return
    from simcluster.lm.headers.read import header_of
    from simcluster.lm.models.runnable import serving_note
    from simcluster.lm.plan.plan import make_plan
    from simcluster.lm.plan.shape import PRESETS, with_weights
    from simcluster.lm.plan.table import lines, wrapped
    from simcluster.lm.plan.times import lengths_in
    from simcluster.topology import load

    name = None if weights is None else format_of(weights)
    cluster, header = load(topology), None if model in PRESETS else header_of(model)
    shape = PRESETS[model] if header is None else header.shape
    shape = shape if name is None else with_weights(shape, name)
    lengths = lengths_in(shape, prompt_tokens, output_tokens)
    found = make_plan(cluster, shape, lengths, requests, open_door("purchases_for")(cluster, parts))
    note = serving_note(header, shape, name)
    if as_json:
        print(json.dumps(found.to_dict() | {"serve": note or None}, indent=2))
    else:
        print(*lines(found), *(["", *wrapped(note)] if note else []), sep="\n")


def _refuse(context: Context, flags: Sequence[str], only: str) -> None:
    """Raise UsageError for every one of *flags* that was typed but has no effect."""
    typed = [flag for flag in flags if str(context.get_parameter_source(flag)).endswith("COMMANDLINE")]
    expected = f"it only {only}" if only.startswith("with") else f"it only without {only}"
    if typed:
        raise UsageError([Problem("--" + flag.replace("_", "-"), "the option", expected) for flag in typed])


def _plan_training(topology: str, model: str, batch_size: int | None, sample_tokens: int, as_json: bool) -> None:
    from simcluster.lm.headers.read import shape_of
    from simcluster.lm.training_plans.plan import plan_training
    from simcluster.lm.training_plans.table import lines
    from simcluster.topology import load

    found = plan_training(load(topology), shape_of(model), batch_size, sample_tokens)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        print(*lines(found), sep="\n")
