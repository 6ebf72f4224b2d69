"""The command `simcluster plan`: where a language model should run, before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Option

from simcluster.cli.complete import one_of
from simcluster.cli.options import Json, TopologyFile

MODELS, FORMATS = ("smollm2", "7b", "8b", "70b"), ("f32", "f16", "q8", "q4")
"""The names for completion and help, which import no topology; a test compares them with the tables."""


def plan(
    topology: TopologyFile,
    model: Annotated[
        str,
        Option(
            metavar="NAME|FILE",
            help=f"{', '.join(MODELS)}, or a config.json, .safetensors or .gguf file; only its header is read.",
            autocompletion=one_of(*MODELS),
        ),
    ],
    requests: Annotated[
        int, Option(metavar="N", help="The requests at once, which get a ranking besides that for one.")
    ] = 8,
    prompt_tokens: Annotated[int, Option(metavar="N", help="The tokens of each prompt.")] = 512,
    output_tokens: Annotated[int, Option(metavar="N", help="The tokens of each answer.")] = 128,
    weights: Annotated[
        str | None,
        Option(
            metavar="FORMAT",
            help=f"{', '.join(FORMATS)}; by default the file's, and q4 for a preset (smollm2: f32).",
            autocompletion=one_of(*FORMATS),
        ),
    ] = None,
    parts: Annotated[
        Path | None, Option(metavar="FILE", help="Purchasable parts with prices, instead of the shipped list.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Rank the placements of a language model, before anything is loaded.

    One node, pipelines, tensor parallelism and replicas, for one request and for many: tokens/s, time to the first
    token, memory per node, what is left out and why, what to buy.
    """
    from simcluster.inference.plan.header import shape_of
    from simcluster.inference.plan.plan import make_plan
    from simcluster.inference.plan.shape import with_weights
    from simcluster.inference.plan.table import lines
    from simcluster.inference.plan.times import Lengths
    from simcluster.topology import load
    from simcluster.what_if.offers import offers

    cluster, shape = load(topology), shape_of(model)
    shape = shape if weights is None else with_weights(shape, weights)
    found = make_plan(cluster, shape, Lengths(prompt_tokens, output_tokens), requests, offers(cluster, parts))
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        print(*lines(found), sep="\n")
