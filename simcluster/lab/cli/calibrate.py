"""The command `simcluster calibrate`: measure a cluster, and write its topology."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

from typer import Option

from simcluster.catalogue import names
from simcluster.cli.terminal.options import (
    Compute,
    Json,
    KeyFile,
    Rendezvous,
    Sets,
    named_argument,
    names_of,
    overrides,
    print_json,
    real_options,
)
from simcluster.cli.terminal.show import check_target, write_file
from simcluster.errors import UsageError
from simcluster.process.loading import torch_loads
from simcluster.spelling import nearest


def calibrate(
    topology: Annotated[
        str, named_argument("TOPOLOGY", "A file or name: the nodes and links to measure.", names_of("topologies"))
    ],
    out: Annotated[
        Path | None, Option(metavar="FILE", help="The file to write; by default NAME-measured.yaml here.")
    ] = None,
    workload: Annotated[
        str, Option(metavar="NAME", help="The workload that measures devices: a name, file.py:function, or none.")
    ] = "mnist_mlp",
    sets: Sets = None,
    backend: Annotated[str, Option(metavar="NAME", help="sockets, or sim to check the method itself.")] = "sockets",
    seed: Annotated[int, Option(metavar="N", help="The seed of the workload's data.")] = 0,
    compute: Compute = None,
    rendezvous: Rendezvous = None,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Measure a cluster's links and devices and write its topology.

    The new file is TOPOLOGY with the measured numbers.
    """
    with torch_loads():
        from simcluster.lab.calibrate import calibrate as measure
        from simcluster.lab.calibrate.write import calibrated_document, calibrated_text, describe
    from simcluster.topology import load

    if backend not in names("backends"):
        raise UsageError("--backend", repr(backend), f"a backend: {nearest(backend, names('backends'))}")
    cluster = load(topology)
    target = check_target(out or Path(f"{cluster.name}-measured.yaml"))
    if target.exists() and Path(topology).exists() and target.samefile(topology):
        raise UsageError("--out", str(target), "a file other than the one that is measured")
    block = {"path" if ":" in workload else "name": workload}
    calibration = measure(
        cluster, backend=backend, workload=None if workload == "none" else block, overrides=overrides(sets),
        options=real_options(None, rendezvous=rendezvous, key_file=key_file), seed=seed, compute=compute,
    )  # fmt: skip
    write_file(target, calibrated_text(calibration, date.today()))
    if as_json:
        print_json(calibrated_document(calibration))
    else:
        print("\n".join(describe(calibration)))
        print(target)
