"""The commands of the lab."""

from __future__ import annotations

from simcluster.cli.commands import CommandLine
from simcluster.cli.terminal.help import CLUSTERS, RESULTS, RUNS, START
from simcluster.lab.cli.baseline import baseline
from simcluster.lab.cli.bench import SUMMARY, add_bench_commands
from simcluster.lab.cli.calibrate import calibrate
from simcluster.lab.cli.explain import explain
from simcluster.lab.cli.export import export
from simcluster.lab.cli.figure import figure
from simcluster.lab.cli.mcp import mcp
from simcluster.lab.cli.replay import replay
from simcluster.lab.cli.report import report
from simcluster.lab.cli.sweep import sweep, whatif
from simcluster.lab.cli.ui import ui
from simcluster.lab.cli.verify import verify


def add_commands(commands: CommandLine) -> None:
    """Add them to *commands*."""
    commands.add(RUNS, sweep)
    commands.add(RUNS, whatif)
    commands.add(RUNS, baseline)
    commands.add(RUNS, verify)
    commands.add(START, mcp)
    commands.add(RESULTS, report)
    commands.add(RESULTS, figure)
    commands.add(RESULTS, explain)
    commands.add(RESULTS, ui)
    commands.add(RESULTS, export)
    commands.add(RESULTS, replay)
    commands.add(CLUSTERS, calibrate)
    add_bench_commands(commands.family("bench", CLUSTERS, SUMMARY))
