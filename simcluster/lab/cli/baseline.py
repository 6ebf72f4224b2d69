"""The command `simcluster baseline`: compare an experiment with one node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from simcluster.cli.terminal import options
from simcluster.cli.terminal.help import OUTPUT
from simcluster.cli.terminal.options import Json, Sets, overrides, print_json
from simcluster.cli.terminal.show import warnings_told
from simcluster.process.loading import torch_loads


def baseline(
    experiment: options.ExperimentFile,
    topology: options.OtherTopology = None,
    algorithm: options.OtherAlgorithm = None,
    workload: options.OtherWorkload = None,
    sets: Sets = None,
    seed: Annotated[int | None, Option(metavar="N", help="The seed of all randomness.")] = None,
    node: Annotated[
        str | None, Option(metavar="NAME", help="The node that works alone; by default the fastest.")
    ] = None,
    out: Annotated[Path | None, options.named("DIR", "The folder of the run on all nodes.", None, OUTPUT)] = None,
    as_json: Json = False,
) -> None:
    """Compare an experiment with the same samples on one node, or a script with itself as the only rank.

    Both runs are simulated. The result is the speed-up and the efficiency; for an algorithm, also
    the distance between the weights.
    """
    with torch_loads():
        from simcluster.lab.explain.baseline import baseline as compare

    with warnings_told():
        found = compare(
            experiment, node=node, out=out, topology=topology, algorithm=algorithm, workload=workload, seed=seed,
            overrides=overrides(sets),
        )  # fmt: skip
    if as_json:
        print_json(found.to_dict())
    else:
        print(*found.sentences(), sep="\n")
