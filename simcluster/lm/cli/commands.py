"""The commands about language models: what to place where, and what it says."""

from __future__ import annotations

from simcluster.cli.commands import CommandLine
from simcluster.cli.terminal.help import CLUSTERS, RUNS
from simcluster.cli.terminal.logs import logged
from simcluster.lm.cli.bench import serving
from simcluster.lm.cli.generate import generate
from simcluster.lm.cli.plan import plan
from simcluster.lm.cli.serve import serve

BENCH = "Time served models."


def add_commands(commands: CommandLine) -> None:
    """Add them to *commands*."""
    commands.add(RUNS, plan)
    commands.add(RUNS, logged("generate")(generate))
    commands.add(RUNS, logged("serve")(serve))
    commands.family("bench", CLUSTERS, BENCH).command()(serving)
