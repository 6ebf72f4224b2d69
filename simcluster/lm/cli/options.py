"""Arguments that several commands about language models share, and the values they accept."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from simcluster.cli.terminal.complete import one_of
from simcluster.cli.terminal.options import named
from simcluster.lm.formats import AUTO, FORMATS

MODELS = ("smollm2", "7b", "8b", "70b")
PLACEMENTS = ("auto", "alone", "pipeline", "tensor", "replicas")
POLICIES = ("least_loaded", "round_robin", "prefix_aware")
ENGINE_NAMES = ("transformers", "llama.cpp", "mlx", "exo", "distributed-llama")
CHUNK_TOKENS, SERVED_CHUNK_TOKENS = 512, 128
"""Copies of the engine's defaults, for completion and help, which do not import the engine.

Tests compare these numbers, and ENGINE_NAMES, with the engine's.
"""

PlacementName = Annotated[
    str,
    named(
        "NAME|FILE",
        "auto (the plan's best), alone, pipeline, tensor, replicas, or a file with a placement.",
        one_of(*PLACEMENTS),
    ),
]
Weights = Annotated[
    str | None,
    named(
        "FORMAT",
        f"{', '.join(FORMATS)}: f32 by default; with times alone the model's; auto: the fastest measured.",
        one_of(*FORMATS, AUTO),
    ),
]
Engine = Annotated[
    str,
    named(
        "NAME",
        f"The program that answers: {', '.join(ENGINE_NAMES[:3])}; `plan` also knows {' and '.join(ENGINE_NAMES[3:])}.",
        one_of(*ENGINE_NAMES),
    ),
]
Guesses = Annotated[
    int, Option(metavar="N", help="Guess up to N tokens from the text so far, and check them in one pass.")
]
PolicyName = Annotated[
    str | None, named("NAME", f"With replicas, which one gets a request: {', '.join(POLICIES)}.", one_of(*POLICIES))
]
ChunkTokens = Annotated[int, Option(metavar="N", help="The most tokens of prompts in one pass through the model.")]
