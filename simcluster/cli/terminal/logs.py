"""The options `--log-format`, `--log-level` and `--loki` of every long-running command."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Annotated, Any

from typer import Option

from simcluster.cli.terminal.help import OUTPUT
from simcluster.cli.terminal.options import taking
from simcluster.errors import RunError, UsageError, listed
from simcluster.process.exits import INTERRUPTED

log = logging.getLogger("simcluster.command")


class ReportedExit(SystemExit):
    """The exit of a command that has already reported everything."""


def _options(
    *,
    log_format: Annotated[
        str,
        Option(
            metavar="text|json", rich_help_panel=OUTPUT, help="The format of logs on standard error, also of nodes."
        ),
    ] = "text",
    log_level: Annotated[
        str | None,
        Option(
            metavar="LEVEL",
            rich_help_panel=OUTPUT,
            help="debug, info, warning or error; by default warning, or info as JSON or to Loki.",
        ),
    ] = None,
    loki: Annotated[
        str | None, Option(metavar="URL", rich_help_panel=OUTPUT, help="Push logs to this Loki, too.")
    ] = None,
) -> None: ...


def logged(component: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds `_options` to a command, which logs as *component*."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*args: Any, log_format: str = "text", log_level: str | None = None, loki: str | None = None,
                **kwargs: Any) -> None:  # fmt: skip
            if log_format == "text" and log_level is None and loki is None:
                command(*args, **kwargs)
                return
            _logging(component, log_format, log_level, loki, functools.partial(command, *args, **kwargs))

        return taking(run, command, _options)

    return decorate


def _logging(component: str, form: str, level: str | None, loki: str | None, command: Callable[[], None]) -> None:
    """Run *command* with the requested logging.

    With JSON, also log the command's error, since all of standard error must be JSON.
    """
    from simcluster.logs import setup as logs

    usual = "info" if form == "json" or loki else "warning"
    chosen = usual if level is None else level
    settings = logs.LogSettings(form, chosen, loki or "", component)
    logs.check(settings)
    logs.configure(settings)
    try:
        command()
    except UsageError as error:
        if not settings.as_json:
            raise
        for line in listed(error.problems):
            log.error("%s", line)
        raise SystemExit(2) from None
    except RunError as error:
        notes = [f"seed {error.seed}"] if error.seed is not None else []
        notes += [f"run folder {error.folder}"] if error.folder is not None else []
        notes += getattr(error, "__notes__", [])
        log.error("%s: %s%s", type(error).__name__, error, "".join(f"; {note}" for note in notes))
        if not settings.as_json:
            raise
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        log.error("interrupted")
        if not settings.as_json:
            raise
        raise ReportedExit(INTERRUPTED) from None
    finally:
        logs.close()
