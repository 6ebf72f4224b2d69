"""Arguments that commands about language models share, and the names that they know."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from simcluster.cli.terminal.complete import one_of
from simcluster.inference.formats import FORMATS, HELD

MODELS = ("smollm2", "7b", "8b", "70b")
PLACEMENTS = ("auto", "alone", "pipeline", "tensor", "replicas")
POLICIES = ("least_loaded", "round_robin", "prefix_aware")
CHUNK_TOKENS, SERVED_CHUNK_TOKENS = 512, 128
"""For completion and help, which import no engine; tests compare them with its tables."""

PlacementName = Annotated[
    str,
    Option(
        metavar="NAME|FILE",
        help="auto (the plan's best), alone, pipeline, tensor, replicas, or a file with a placement.",
        autocompletion=one_of(*PLACEMENTS),
    ),
]
Weights = Annotated[
    str | None,
    Option(
        metavar="FORMAT",
        help=f"{', '.join(HELD)}: f32 by default. With times alone any of {', '.join(FORMATS)}, or the model's.",
        autocompletion=one_of(*FORMATS),
    ),
]
Guesses = Annotated[
    int, Option(metavar="N", help="Guess up to N tokens from the text so far, and check them in one pass.")
]
PolicyName = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help=f"With replicas, which one gets a request: {', '.join(POLICIES)}.",
        autocompletion=one_of(*POLICIES),
    ),
]
ChunkTokens = Annotated[int, Option(metavar="N", help="The most tokens of prompts in one pass through the model.")]
