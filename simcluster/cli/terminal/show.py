"""Show the output of commands: a run's numbers, a progress bar, a live view, and written files."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.errors import CheckpointWarning, RunError, UsageError
from simcluster.paths.given_path import given_path
from simcluster.paths.inside import write_whole
from simcluster.process import terminal

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder
    from simcluster.watching.telling import Watcher


def wrapped(line: str) -> str:
    """Return *line*, wrapped to the second column of a table if standard output is a terminal."""
    if not sys.stdout.isatty():
        return line
    width = max(60, shutil.get_terminal_size().columns)
    return textwrap.fill(line, width, subsequent_indent=" " * 25, break_long_words=False, break_on_hyphens=False)


def print_finished(finished: RunFolder, *, as_json: bool) -> None:
    """Print a run's outcome, in words or as its summary.json."""
    from simcluster.runs import words

    summary = finished.summary
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    clock = "virtual" if summary["backend"] == "sim" else "measured"
    if (told := summary.get("elapsed_interval_s")) is not None:  # of a prediction on a calibrated topology
        clock += f"; with {words.share(told['level'])} between {told['low']:.3f} and {told['high']:.3f} s"
    accuracy = "" if summary["accuracy"] is None else f", accuracy {summary['accuracy']:.3f}"
    is_script = summary["algorithm"] == "script"
    loss = "" if summary["loss"] is None else f", {'' if is_script else 'held-out '}loss {summary['loss']:.4f}"
    if summary.get("perplexity") is not None:
        loss += f", perplexity {words.number(summary['perplexity'])}"
    where = f"{summary['topology']} ({summary['backend']}, seed {summary['seed']})"
    took = f"{summary['elapsed_s']:.3f} s ({clock}), {summary['wall_s']:.1f} s of wall time"
    sent = f"{summary['messages_sent']:,} messages, {summary['bytes_sent']:,} bytes sent"
    print(f"{summary['name' if is_script else 'algorithm']} on {where}: {summary['status']}")
    print(f"  {words.steps(summary)} in {took}{loss}{accuracy}")
    weights = "; timed only" if words.timed_only(summary) else f"; weights {str(summary['weights_sha256'])[:16]}"
    print(f"  {sent}{'' if is_script else weights}")
    bill = [words.energy(summary["joules"]), words.price(summary["price_usd"])]
    if any(part != words.ABSENT for part in bill):
        print(f"  {', '.join(part for part in bill if part != words.ABSENT)} for all devices")
    if summary.get("left_out"):
        print(f"  left out of the order: {', '.join(summary['left_out'])}")
    for name, reason in (summary.get("lost") or {}).items():
        print(f"  without {name}: {reason}")
    for row in summary.get("regroups") or ():
        print(f"  regrouped at step {row['step']}: {', '.join(row['members'])}")
    for row in summary.get("restarts") or ():
        uncounted = "" if summary.get("resumed") else ", not counted above"
        lasted = f" after {words.seconds(row['lasted_s'])}{uncounted}" if "lasted_s" in row else ""
        print(f"  restarted from {row['begins_again']}{lasted}: {row['error']}")
    report = finished.folder / "report.html"
    print(f"  {report if report.exists() else finished.folder}")


@contextmanager
def shown(title: str, *, watch: bool, as_json: bool) -> Iterator[dict[str, Any]]:
    """Show the progress of a run within the context; yield arguments for `run` or `resume`.

    If *as_json*, print the summary.json of a run that fails.
    """
    with watching(silent=as_json or not watch) as watcher, progress_bar(title, silent=as_json or watch) as progress:
        try:
            yield {"progress": progress, "watcher": watcher, "on_output": None if as_json else print_line}
        except RunError as error:
            if as_json and error.folder is not None and (summary := Path(error.folder) / "summary.json").is_file():
                print(summary.read_text(), end="")
            raise


@contextmanager
def warnings_told() -> Iterator[None]:
    """Within the context, print each warning about checkpoints as one plain line."""

    def say(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = say
        warnings.simplefilter("always", CheckpointWarning)
        yield


def print_line(name: str, line: str) -> None:
    """Print a line of node *name*'s output on standard error, without control characters.

    Skip log lines below this command's level: nodes log often, and their files have all lines.
    """
    from simcluster.logs import setup as logs

    if logs.is_below(line):
        return

    if logs.current().as_json:
        print(logs.wrapped(name, line), file=sys.stderr, flush=True)
        return
    plain = "".join(character if character.isprintable() or character == "\t" else "?" for character in line)
    print(f"{name} | {plain}", file=sys.stderr, flush=True)


@contextmanager
def progress_bar(title: str, *, silent: bool, estimate_s: float = 30.0) -> Iterator[Callable[..., None] | None]:
    """Yield a callback that draws a progress bar on standard error; None unless it is a terminal.

    The callback takes (steps done, total steps, steps done before the run was resumed). The time
    left is estimated from the steps of the last *estimate_s* seconds in this run. After a Ctrl-C,
    print what is kept and how to continue.
    """
    try:
        with _bar(title, silent, estimate_s) as progress:
            yield progress
    except KeyboardInterrupt as end:
        for words in getattr(end, "__notes__", []):
            print(words, file=sys.stderr)
        raise


@contextmanager
def _bar(title: str, silent: bool, estimate_s: float) -> Iterator[Callable[..., None] | None]:
    if silent or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    drawing = Progress(*columns, console=terminal.console(), transient=True, speed_estimate_period=estimate_s)
    with terminal.drawn(drawing) as bar:
        task = bar.add_task(terminal.title(title), total=None)

        def progress(done: int, total: int, before: int = 0) -> None:
            if 0 < before == done:
                bar.reset(task, completed=done, total=total)
            else:
                bar.update(task, completed=done, total=total)

        yield progress


@contextmanager
def watching(*, silent: bool) -> Iterator[Watcher | None]:
    """Yield a watcher that draws the run on standard error; None unless this is a terminal.

    The last view stays on the terminal.
    """
    if not silent and not sys.stderr.isatty():
        print("note: --watch draws on a terminal, and standard error is none", file=sys.stderr)
        silent = True
    if silent:
        yield None
        return
    from rich.live import Live

    from simcluster.watching.screen import draw
    from simcluster.watching.watcher import IntervalWatcher

    console = terminal.console()
    # The caller draws when the state changes: a separate thread would slow the simulation down.
    with terminal.drawn(Live(console=console, auto_refresh=False, redirect_stdout=True, redirect_stderr=True)) as live:

        def show(run: dict[str, Any], history: list[dict[str, Any]]) -> None:
            width, height = console.size
            live.update(draw(run, history, width=width, height=height), refresh=True)

        yield IntervalWatcher(show)


def check_target(given: Path) -> Path:
    """Return *given* with a leading `~` expanded. Raise UsageError if it cannot be written.

    Call this before the work whose result the file will hold.
    """
    target = given_path(given, "--out")
    folder = target.absolute().parent
    if target.is_dir():
        raise UsageError("--out", f"the folder {target}", "a file")
    if not folder.is_dir():
        why = f"no folder {folder}; choose a folder that exists"
    elif not os.access(folder, os.W_OK | os.X_OK):
        why = f"{folder} is read-only; choose a folder that can be written"
    else:
        return target
    raise UsageError("--out", f"cannot write {target}: {why}", "")


def write_file(target: Path, text: str) -> None:
    """Write *text* to *target*; on failure, leave *target* unchanged and raise UsageError."""
    try:
        write_whole(target.parent, target.name, content=text.encode())
    except OSError as error:
        why = f"cannot write {target}: {error.strerror}; choose another --out"
        raise UsageError("--out", why, "") from None
