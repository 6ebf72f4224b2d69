"""The commands `simcluster run` and `simcluster resume`, which write a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from simcluster.cli.terminal import options
from simcluster.cli.terminal.help import OUTPUT
from simcluster.cli.terminal.options import Json, Report, Sets, overrides, print_json, real_options
from simcluster.cli.terminal.show import print_finished, shown, warnings_told
from simcluster.cli.track import Track, tracked
from simcluster.paths.last_run import last_run
from simcluster.process.loading import torch_loads

EXAMPLES = """\b
Examples:
  simcluster run quickstart --algorithm edp --set algorithm.pull_interval=4
  simcluster run quickstart --set topology.nodes.pi4.straggler.factor=10
  simcluster run mine/experiment.yaml --backend sockets --out runs/first
  simcluster run quickstart --backend sockets --topology shelf.yaml
  simcluster run --script train.py --topology thunderbolt-mesh-4 -- --lr 0.1"""


@options.on_real_nodes
def run(
    experiment: options.ExperimentOrArgument = None,
    script_args: options.ScriptArguments = None,
    script: options.Script = None,
    module: options.Module = None,
    pass_local_rank: options.PassLocalRank = False,
    backend: options.BackendName = None,
    topology: options.OtherTopology = None,
    algorithm: options.OtherAlgorithm = None,
    workload: options.OtherWorkload = None,
    sets: Sets = None,
    seed: Annotated[int | None, Option(metavar="N", help="The seed of all randomness.")] = None,
    compute: options.Compute = None,
    out: Annotated[
        Path | None, options.named("DIR", "The run folder; by default a new one in runs.", None, OUTPUT)
    ] = None,
    report: Report = True,
    nproc_per_node: options.Processes = None,
    more_options: options.BackendOptions = None,
    track: Track = None,
    watch: options.Watch = False,
    as_json: Json = False,
    **nodes: Any,
) -> None:
    """Run an experiment, or a torch.distributed script, on a backend and write its run folder."""
    changed = overrides(sets)
    source = options.script_or_experiment(
        experiment, script_args or (), script, module, pass_local_rank=pass_local_rank
    )
    named = backend or changed.get("backend") or options.backend_named(source, None)
    given = overrides(more_options, "--option") | real_options(named, **nodes)
    if nproc_per_node is not None:
        changed["topology.launch.nproc_per_node"] = nproc_per_node
    title = f"{Path(script or module or str(experiment)).stem}{f' on {backend}' if backend else ''}"
    with (
        warnings_told(),
        tracked(track, silent=as_json) as tracking,
        shown(title, watch=watch, as_json=as_json) as showing,
    ):
        options.start_early(named, given)
        with torch_loads():
            from simcluster.experiment import run as run_experiment

        finished = run_experiment(
            source, backend=backend, topology=topology, algorithm=algorithm, workload=workload, overrides=changed,
            seed=seed, compute=compute, out=out, options=given, report=report, follower=tracking.follower, **showing,
        )  # fmt: skip
        tracking.folders.append(finished.folder)
    print_finished(finished, as_json=as_json)


@options.on_real_nodes
def resume(
    run: Annotated[Path, Argument(metavar="RUN", help="The folder of a run with checkpoints.")],
    backend: options.BackendName = None,
    topology: options.OtherTopology = None,
    sets: Sets = None,
    compute: options.Compute = None,
    step: Annotated[int | None, Option(metavar="N", help="The checkpoint's step; by default the last.")] = None,
    out: Annotated[Path | None, options.named("DIR", "The run folder; by default RUN itself.", None, OUTPUT)] = None,
    report: Report = True,
    more_options: options.BackendOptions = None,
    track: Track = None,
    watch: options.Watch = False,
    show: Annotated[bool, Option("--list", help="Only list the checkpoints.")] = False,
    as_json: Json = False,
    **nodes: Any,
) -> None:
    """Resume a run from its last complete checkpoint."""
    run = last_run(run)
    named = options.backend_named(run / "config.yaml", backend)
    given = overrides(more_options, "--option") | real_options(named, **nodes)
    with warnings_told():
        if show:
            _list(run, as_json)
            return
        with (
            tracked(track, silent=as_json) as tracking,
            shown(f"{run.name}, resumed", watch=watch, as_json=as_json) as showing,
        ):
            options.start_early(named, given)
            with torch_loads():
                from simcluster.experiment.run import resume as resume_run

            finished = resume_run(
                run, step=step, backend=backend, topology=topology, overrides=overrides(sets), compute=compute,
                out=out, options=given, report=report, follower=tracking.follower, **showing,
            )  # fmt: skip
            tracking.folders.append(finished.folder)
    print_finished(finished, as_json=as_json)


def _list(run: Path, as_json: bool) -> None:
    from simcluster.checkpoints.store import checkpoints

    rows: list[dict[str, Any]] = [
        {"step": found.step, "time_s": found.manifest.time_s, "ranks": found.manifest.world_size, **found.judged}
        | {"path": str(found.path)}
        for found in checkpoints(run)
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        judged = "".join(f", {name} {row[name]:.4g}" for name in ("loss", "accuracy") if name in row)
        print(f"step {row['step']}, {row['time_s']:.4g} s, {row['ranks']} ranks{judged}: {row['path']}")
    if not rows:
        print(f"no checkpoints in {run}")
