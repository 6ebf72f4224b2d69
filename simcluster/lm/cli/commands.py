"""The commands about language models: plan, generate, serve, and bench."""

from __future__ import annotations

from simcluster.cli.commands import CommandLine
from simcluster.cli.terminal.help import CLUSTERS, RUNS
from simcluster.cli.terminal.logs import logged
from simcluster.cli.terminal.options import with_defaults
from simcluster.lm.cli.bench import serving
from simcluster.lm.cli.generate import generate
from simcluster.lm.cli.plan import plan
from simcluster.lm.cli.serve import serve

BENCH = "Time served models."


def add_commands(commands: CommandLine) -> None:
    """Add the commands about language models to *commands*."""
    commands.add(RUNS, with_defaults(plan))
    commands.add(RUNS, logged("generate")(with_defaults(generate)))
    commands.add(RUNS, logged("serve")(with_defaults(serve)))
    commands.family("bench", CLUSTERS, BENCH).command()(with_defaults(serving))
