"""What processes of a run say, line by line: as text, as JSON that machines collect, and pushed to Loki if asked for.

Every JSON line has job, component, host, rank, level, time and message; what raised has exception, too.
"""

from __future__ import annotations

import io
import json
import logging
import os
import platform
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TextIO

from simcluster.errors import Problem, UsageError

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
KEYS = ("time", "level", "job", "component", "host", "rank", "message")
TEXT = "%(asctime)s %(levelname)s %(message)s"


@dataclass(frozen=True)
class LogSettings:
    """How a process logs, and what it is: *rank* is None for whatever is no node. *loki* is a URL, if given."""

    format: str = "text"
    level: str = "warning"
    loki: str = ""
    component: str = "command"
    job: str = ""
    rank: int | None = None

    @property
    def as_json(self) -> bool:
        return self.format == "json"


_settings = LogSettings()
_handlers: list[logging.Handler] = []


def current() -> LogSettings:
    """How this process logs."""
    return _settings


def about(**changes: Any) -> None:
    """More is known of this process by now: its job, its component, its rank."""
    global _settings
    _settings = replace(_settings, **changes)


def check(settings: LogSettings) -> None:
    """Raises UsageError with all that is wrong."""
    from simcluster.logs.loki import parse_url

    problems = [
        Problem(f"--log-{name}", repr(value), f"one of {', '.join(known)}")
        for name, value, known in (("format", settings.format, FORMATS), ("level", settings.level, LEVELS))
        if value not in known
    ]
    if settings.loki:
        try:
            parse_url(settings.loki)
        except UsageError as error:
            problems += error.problems
    if problems:
        raise UsageError(problems)


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """From now on this process logs so, to *stream*, by default standard error. `close` ends it."""
    global _settings
    close()
    _settings = settings
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines() if settings.as_json else logging.Formatter(TEXT))
    _handlers.append(handler)
    if settings.loki:
        from simcluster.logs.loki import Loki

        _handlers.append(Loki(settings.loki, JsonLines()))
    root = logging.getLogger()
    for one in _handlers:
        root.addHandler(one)
    root.setLevel(settings.level.upper())


def close() -> None:
    """What is still to be said is said, as far as that takes little time; then this process logs as it did before."""
    global _settings
    root = logging.getLogger()
    if _handlers:
        root.setLevel(logging.WARNING)
    while _handlers:
        handler = _handlers.pop()  # Loki first: what it lost is still said by the other
        root.removeHandler(handler)
        handler.close()
    _settings = LogSettings()


def log_as_node(settings: LogSettings) -> None:
    """As `configure` for a node's process: as JSON, what its program prints is logged, too.

    Whoever started it by hand may have said how it is to log; then that holds.
    """
    if _handlers:
        about(component=settings.component, job=settings.job, rank=settings.rank)
    elif settings.as_json:
        logging.getLogger().handlers.clear()
        configure(settings, os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace"))
    elif settings.loki:
        logging.getLogger().handlers.clear()
        configure(settings)
    else:
        logging.getLogger().setLevel(settings.level.upper())
    if _settings.as_json:
        sys.stdout, sys.stderr = Lines("stdout", logging.INFO), Lines("stderr", logging.WARNING)


def wrapped(name: str, line: str) -> str:
    """*line*, which node *name* printed elsewhere, as JSON; as it is, if it is that already."""
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if isinstance(found, dict) and all(key in found for key in KEYS):
        return json.dumps(found)
    record = logging.LogRecord("simcluster.elsewhere", logging.INFO, "", 0, line, (), None)
    return json.dumps(fields(record) | {"component": "node", "node": name, "host": None})


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """*record* as plain values."""
    settings = _settings
    found: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
        "level": record.levelname.lower(),
        "job": settings.job,
        "component": settings.component,
        "host": platform.node(),
        "rank": settings.rank,
        "message": record.getMessage(),
    }
    if record.name.startswith("simcluster.printed."):
        found["stream"] = record.name.rpartition(".")[2]
    if record.exc_info:
        found["exception"] = logging.Formatter().formatException(record.exc_info)
    return found


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(fields(record))


class Lines(io.TextIOBase):
    """A stream whose lines are logged, whatever the level: what a program prints is meant to be seen."""

    def __init__(self, name: str, level: int) -> None:
        self._name, self._level, self._begun = f"simcluster.printed.{name}", level, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._log(line)
        return len(text)

    def close(self) -> None:
        """Says the rest."""
        if self._begun:
            self._log(self._begun)
            self._begun = ""

    def _log(self, line: str) -> None:
        logger = logging.getLogger(self._name)
        logger.handle(logger.makeRecord(self._name, self._level, "", 0, line, (), None))
