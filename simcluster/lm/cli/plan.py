"""The command `simcluster plan`: where a language model should run, before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Context, Option

from simcluster.cli.terminal.complete import one_of
from simcluster.cli.terminal.options import Json, TopologyFile, named, print_json
from simcluster.errors import Problem, UsageError
from simcluster.lm.cli.options import ENGINE_NAMES, MODELS, Engine
from simcluster.lm.formats import AUTO, FORMATS, format_of
from simcluster.wings import open_door

ANSWERING = ("requests", "prompt_tokens", "output_tokens", "weights", "engine", "parts")
TRAINING = ("batch_size", "sample_tokens", "expert_load")
"""Options that apply only without --training (ANSWERING), and only with it (TRAINING)."""

Model = Annotated[
    str,
    named(
        "NAME|FILE",
        f"{', '.join(MODELS)}, a name of `list models`, a config.json, .safetensors or .gguf file, or a folder; "
        "only headers are read.",
        one_of(*MODELS),
    ),
]
Weights = Annotated[
    str | None,
    named(
        "FORMAT",
        f"{', '.join(FORMATS)}, auto; by default the file's, and bf16 for a preset (smollm2: f32).",
        one_of(*FORMATS, AUTO),
    ),
]
BatchSize = Annotated[
    int | None,
    Option(metavar="N", help="With --training: the samples of a step on all nodes together; by default 4 each."),
]
ExpertLoad = Annotated[
    str | None,
    Option(metavar="LOAD", help="With --training: the tokens of each expert, uniform (the default) or zipf(s)."),
]


def plan(
    context: Context,
    topology: TopologyFile,
    model: Model,
    requests: Annotated[
        int, Option(metavar="N", help="The requests at once, which get a ranking besides that for one.")
    ] = 8,
    prompt_tokens: Annotated[
        int | None, Option(metavar="N", help="The tokens of each prompt: 512, or what the model's context leaves.")
    ] = None,
    output_tokens: Annotated[
        int | None, Option(metavar="N", help="The tokens of each answer: 128, or a quarter of the context.")
    ] = None,
    weights: Weights = None,
    engine: Engine = ENGINE_NAMES[0],
    parts: Annotated[
        Path | None, Option(metavar="FILE", help="Purchasable parts with prices, instead of the shipped list.")
    ] = None,
    training: Annotated[
        bool, Option("--training", help="Rank algorithms that train the model, not placements for requests.")
    ] = False,
    batch_size: BatchSize = None,
    sample_tokens: Annotated[int, Option(metavar="N", help="With --training: the tokens of each sample.")] = 1024,
    expert_load: ExpertLoad = None,
    as_json: Json = False,
) -> None:
    """Rank the placements of a language model, or with --training the ways to train it, before anything is loaded.

    One node, pipelines, tensor parallelism and replicas, for one request and for many: tokens/s, time to the first
    token, memory per node, what is left out and why, what to buy.
    """
    _refuse(context, ANSWERING if training else TRAINING, f"{'' if training else 'with '}--training")
    if training:
        _plan_training(topology, model, batch_size, sample_tokens, expert_load, as_json)
        return
    from simcluster.lm.headers.read import header_of
    from simcluster.lm.measured_formats import in_format, measured_note
    from simcluster.lm.models.runnable import serving_note
    from simcluster.lm.plan.engines import DEFAULT, terms_of
    from simcluster.lm.plan.plan import make_plan
    from simcluster.lm.plan.shape import PRESETS, with_held_weights, with_weights
    from simcluster.lm.plan.table import lines, wrapped
    from simcluster.lm.plan.times import lengths_in
    from simcluster.lm.serving.placement import fastest_placed
    from simcluster.topology import load

    name = None if weights in (None, AUTO) else format_of(str(weights))
    terms_of(engine, name)
    if weights == AUTO and engine != DEFAULT:
        raise UsageError("--weights", AUTO, f"a format: only {DEFAULT} chooses one")
    cluster = load(topology)
    header = None if model in PRESETS else header_of(model)
    shape = PRESETS[model] if header is None else header.shape
    if weights == AUTO:
        name = fastest_placed(cluster, shape)
    measured = measured_note(cluster, name) if name is not None and engine == DEFAULT else None
    if name is not None:
        shape = (with_held_weights if engine == DEFAULT else with_weights)(shape, name)
        cluster = in_format(cluster, name) if engine == DEFAULT else cluster
    lengths = lengths_in(shape, prompt_tokens, output_tokens)
    found = make_plan(cluster, shape, lengths, requests, open_door("purchases_for")(cluster, parts), engine)
    note = serving_note(header, shape, name) if engine == DEFAULT else ""
    if as_json:
        print_json(found.to_dict() | {"serve": note or None, "formats": measured})
    else:
        notes = [line for text in filter(None, (measured, note)) for line in ("", *wrapped(text))]
        print(*lines(found), *notes, sep="\n")


def _refuse(context: Context, flags: Sequence[str], only: str) -> None:
    """Raise UsageError for all of *flags* that the user typed.

    *only* is the option that excludes the flags, or "with --X" if they need the option --X.
    """
    # A flag that only has its default value is not an error.
    typed = [flag for flag in flags if str(context.get_parameter_source(flag)).endswith("COMMANDLINE")]
    expected = f"it only {only}" if only.startswith("with") else f"it only without {only}"
    if typed:
        raise UsageError([Problem("--" + flag.replace("_", "-"), "the option", expected) for flag in typed])


def _plan_training(
    topology: str, model: str, batch_size: int | None, sample_tokens: int, expert_load: str | None, as_json: bool
) -> None:
    from simcluster.lm.headers.read import shape_of
    from simcluster.lm.training_plans.plan import plan_training
    from simcluster.lm.training_plans.table import lines
    from simcluster.topology import load

    found = plan_training(load(topology), shape_of(model), batch_size, sample_tokens, expert_load)
    if as_json:
        print_json(found.to_dict())
    else:
        print(*lines(found), sep="\n")
