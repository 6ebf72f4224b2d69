"""The commands of the lab."""

from __future__ import annotations

from simcluster.cli.commands import CommandLine
from simcluster.cli.terminal.help import CLUSTERS, RESULTS, RUNS, START
from simcluster.cli.terminal.options import with_defaults
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
    """Add the commands of the lab to *commands*."""
    panels = {
        RUNS: (*(with_defaults(one, by_sets=True) for one in (sweep, whatif, baseline)), verify),
        START: (mcp,),
        RESULTS: (report, figure, explain, ui, export, replay),
        CLUSTERS: (with_defaults(calibrate),),
    }
    for panel, functions in panels.items():
        for function in functions:
            commands.add(panel, function)
    add_bench_commands(commands.family("bench", CLUSTERS, SUMMARY))
