"""The output of the commands: a run's numbers, tables, a progress bar."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.errors import CheckpointWarning, RunError
from simcluster.process import terminal

if TYPE_CHECKING:
    from simcluster.experiment.run import Progress
    from simcluster.runs.folder import RunFolder


def wrapped(line: str) -> str:
    """Wrap *line* to a table's second column if stdout is a terminal."""
    if not sys.stdout.isatty():
        return line
    width = max(60, shutil.get_terminal_size().columns)
    return textwrap.fill(line, width, subsequent_indent=" " * 25, break_long_words=False, break_on_hyphens=False)


def print_summary(finished: RunFolder) -> None:
    from simcluster.runs import words

    summary = finished.summary
    clock = "virtual" if summary["backend"] == "sim" else "measured"
    accuracy = "" if summary["accuracy"] is None else f", accuracy {summary['accuracy']:.3f}"
    loss = "" if summary["loss"] is None else f", held-out loss {summary['loss']:.4f}"
    where = f"{summary['topology']} ({summary['backend']}, seed {summary['seed']})"
    took = f"{summary['elapsed_s']:.3f} s ({clock}{_between(summary)}), {summary['wall_s']:.1f} s of wall time"
    sent = f"{summary['messages_sent']:,} messages, {summary['bytes_sent']:,} bytes sent"
    print(f"{summary['algorithm']} on {where}: {summary['status']}")
    print(f"  {summary['steps']} steps in {took}{loss}{accuracy}")
    weights = "timed only" if words.timed_only(summary) else f"weights {str(summary['weights_sha256'])[:16]}"
    print(f"  {sent}; {weights}")
    bill = [form(summary[key]) for key, form in (("joules", words.energy), ("price_usd", words.price))]
    if any(part != words.ABSENT for part in bill):
        print(f"  {', '.join(part for part in bill if part != words.ABSENT)} for all devices")
    for line in _losses(summary):
        print(f"  {line}")
    report = finished.folder / "report.html"
    print(f"  {report if report.exists() else finished.folder}")


def _losses(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line per lost node, regrouping and restart."""
    for name, reason in (summary.get("lost") or {}).items():
        yield f"without {name}: {reason}"
    for row in summary.get("regroups") or ():
        yield f"regrouped at step {row['step']}: {', '.join(row['members'])}"
    for row in summary.get("restarts") or ():
        yield f"restarted from {row['begins_again']}: {row['error']}"


def print_finished(finished: RunFolder, *, as_json: bool) -> None:
    """Print a run's outcome, in words or as its summary.json."""
    if as_json:
        print(json.dumps(finished.summary, indent=2))
    else:
        print_summary(finished)


@contextmanager
def failure_printed(*, as_json: bool) -> Iterator[None]:
    """For a run that fails inside, print its summary.json if asked for; for one that is interrupted, print how to
    resume.
    """
    try:
        yield
    except RunError as error:
        if as_json and error.folder is not None and (summary := Path(error.folder) / "summary.json").is_file():
            print(summary.read_text(), end="")
        raise
    except KeyboardInterrupt as end:
        for words in getattr(end, "__notes__", []):
            print(words, file=sys.stderr)
        raise


@contextmanager
def warnings_told() -> Iterator[None]:
    """Print every warning about checkpoints as a line for people."""

    def say(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = say
        warnings.simplefilter("always", CheckpointWarning)
        yield


def print_line(name: str, line: str) -> None:
    """Print a line of node *name*'s output on standard error, without control characters."""
    from simcluster.logs import setup as logs

    if logs.current().as_json:
        print(logs.wrapped(name, line), file=sys.stderr, flush=True)
        return
    plain = "".join(character if character.isprintable() or character == "\t" else "?" for character in line)
    print(f"{name} | {plain}", file=sys.stderr, flush=True)


@contextmanager
def progress_bar(title: str, *, silent: bool) -> Iterator[Progress | None]:
    """Yield a progress callback that draws a bar on standard error; None unless that is a terminal."""
    if silent or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with terminal.drawn(Progress(*columns, console=terminal.console(), transient=True)) as bar:
        task = bar.add_task(terminal.title(title), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _between(summary: Mapping[str, Any]) -> str:
    """Return the interval of a prediction on a calibrated topology."""
    from simcluster.runs import words

    told = summary.get("elapsed_interval_s")
    if told is None:
        return ""
    return f"; with {words.share(told['level'])} between {told['low']:.3f} and {told['high']:.3f} s"
