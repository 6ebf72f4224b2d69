"""Set up the logging of a run's processes: as lines of text or JSON, optionally pushed to Loki.

Every JSON line has job, component, host, rank, level, time and message; a line with a traceback
also has exception.
"""

from __future__ import annotations

import io
import json
import logging
import os
import platform
import re
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TextIO

from simcluster.errors import Problem, UsageError, raise_all

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
KEYS = ("time", "level", "job", "component", "host", "rank", "message")
TEXT = "%(asctime)s %(levelname)s %(message)s"
_LEVELLED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) ")


@dataclass(frozen=True)
class LogSettings:
    """The log format of a process, and its identity in log lines.

    *rank* is None unless the process is a node. *loki* is the URL of a Loki, or "".
    """

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
    """Return the settings of this process."""
    return _settings


def about(**changes: Any) -> None:
    """Change the identity of this process in log lines: its job, component or rank."""
    global _settings
    _settings = replace(_settings, **changes)


def level_of_nodes() -> str:
    """Return the log level for the nodes of a run.

    It is the level of this process if its logging was set up, else info: nodes log to files.
    """
    return "info" if _settings == LogSettings(job=_settings.job) else _settings.level


def is_below(line: str) -> bool:
    """Return whether *line*, printed by a node, is a text log line below this process's level."""
    found = _LEVELLED.match(line)
    return found is not None and not logging.getLogger().isEnabledFor(getattr(logging, found[1]))


def check(settings: LogSettings) -> None:
    """Raise UsageError with every problem in *settings*."""
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
    raise_all(problems)


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Log with *settings* to *stream*, by default standard error, until `close`."""
    global _settings
    close()
    _settings = settings
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(formatter(settings))
    _handlers.append(handler)
    if settings.loki:
        from simcluster.logs.loki import Loki

        _handlers.append(Loki(settings.loki, JsonLines()))
    root = logging.getLogger()
    for one in _handlers:
        root.addHandler(one)
    root.setLevel(settings.level.upper())


def formatter(settings: LogSettings) -> logging.Formatter:
    return JsonLines() if settings.as_json else logging.Formatter(TEXT)


def close() -> None:
    """Flush the handlers, for a limited time, and restore the logging as it was before
    `configure`.
    """
    global _settings
    root = logging.getLogger()
    if _handlers:
        root.setLevel(logging.WARNING)
    while _handlers:
        handler = _handlers.pop()  # close Loki first: the other handler then reports its lost lines
        root.removeHandler(handler)
        handler.close()
    _settings = LogSettings()


def log_as_node(settings: LogSettings) -> None:
    """Configure the logging of a node's process. If the format is JSON, also log the output of its
    program.

    A node that was started by hand with logging options keeps them.
    """
    if _handlers:
        about(component=settings.component, job=settings.job, rank=settings.rank)
    elif settings.as_json or settings.loki:
        logging.getLogger().handlers.clear()
        lines = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace") if settings.as_json else None
        configure(settings, lines)
    else:
        logging.getLogger().setLevel(settings.level.upper())
    if _settings.as_json:
        sys.stdout, sys.stderr = Lines("stdout", logging.INFO), Lines("stderr", logging.WARNING)


def wrapped(name: str, line: str) -> str:
    """Return *line*, which node *name* on another machine printed, as a JSON log line.

    A line that is a JSON log line already keeps its content.
    """
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if isinstance(found, dict) and all(key in found for key in KEYS):
        return json.dumps(found)
    record = logging.LogRecord("simcluster.elsewhere", logging.INFO, "", 0, line, (), None)
    return json.dumps(fields(record) | {"component": "node", "node": name, "host": None})


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return *record* as JSON values, including the mapping `fields` in its `extra`."""
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
    found |= getattr(record, "fields", {})
    if record.exc_info:
        found["exception"] = logging.Formatter().formatException(record.exc_info)
    return found


class JsonLines(logging.Formatter):
    """A formatter that returns a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(fields(record))


class Lines(io.TextIOBase):
    """A text stream that logs its lines, whatever the log level: users want to see program output."""

    def __init__(self, name: str, level: int) -> None:
        self._name = f"simcluster.printed.{name}"
        self._level = level
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._log(line)
        return len(text)

    def close(self) -> None:
        """Log the incomplete last line."""
        if self._begun:
            self._log(self._begun)
            self._begun = ""

    def _log(self, line: str) -> None:
        logger = logging.getLogger(self._name)
        logger.handle(logger.makeRecord(self._name, self._level, "", 0, line, (), None))
