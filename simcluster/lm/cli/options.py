"""Arguments that commands about language models share, and the names that they know."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from simcluster.cli.terminal.complete import one_of
from simcluster.cli.terminal.options import named
from simcluster.lm.formats import FORMATS, HELD

MODELS = ("smollm2", "7b", "8b", "70b")
PLACEMENTS = ("auto", "alone", "pipeline", "tensor", "replicas")
POLICIES = ("least_loaded", "round_robin", "prefix_aware")
CHUNK_TOKENS, SERVED_CHUNK_TOKENS = 512, 128
"""For completion and help, which import no engine; tests compare them with its tables."""

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
        f"{', '.join(HELD)}: f32 by default. With times alone any of {', '.join(FORMATS)}, or the model's.",
        one_of(*FORMATS),
    ),
]
Guesses = Annotated[
    int, Option(metavar="N", help="Guess up to N tokens from the text so far, and check them in one pass.")
]
PolicyName = Annotated[
    str | None, named("NAME", f"With replicas, which one gets a request: {', '.join(POLICIES)}.", one_of(*POLICIES))
]
ChunkTokens = Annotated[int, Option(metavar="N", help="The most tokens of prompts in one pass through the model.")]
