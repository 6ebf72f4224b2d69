"""The command `simcluster replay`: repeat a real run in the simulator, in its recorded order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simcluster.cli.terminal.options import Json, Report, overrides, print_json
from simcluster.errors import UsageError


def replay(
    run: Annotated[Path, Argument(metavar="RUN", help="The folder of a run on sockets.")],
    out: Annotated[Path | None, Option(metavar="DIR", help="The replay's folder; by default RUN-replay.")] = None,
    what_if: Annotated[
        list[str] | None,
        Option(
            "--what-if", metavar="K=V", help="Keep the recorded work but change the cluster: topology.links.a-b...=V."
        ),
    ] = None,
    report: Report = True,
    as_json: Json = False,
) -> None:
    """Replay a real run in its recorded order, and compare."""
    if what_if:
        if out is not None:
            raise UsageError("--out", str(out), "no --out with --what-if, which only predicts times")
        from simcluster.lab.replays.whatif import what_if as ask

        answer = ask(run, overrides(what_if, "--what-if"))
        print_json(answer.as_dict()) if as_json else print(answer.in_words())
        return
    from simcluster.lab.replays.run import replay as play

    replayed = play(run, out=out, report=report)
    if as_json:
        print_json(replayed.as_dict())
        return
    nodes = len(replayed.weights)
    print(
        f"the same weights on {nodes} of {nodes} nodes, bit for bit, after {replayed.events} events "
        f"and {replayed.callbacks} callbacks in their recorded order ({replayed.wall_s:.1f} s)"
    )
    print(replayed.run.folder)
