"""The entry point of the command `simcluster` and of `python -m simcluster`."""

import os
import signal
import sys
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    """Exit on a Ctrl-C that arrives before InterruptHandler has been imported."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


# If Python's handler is not set, the parent process ignores SIGINT (as a shell does for background
# jobs), so keep ignoring it.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)

from simcluster.process.exits import INTERRUPTED, any_stuck, leave  # noqa: E402
from simcluster.process.interrupts import InterruptHandler  # noqa: E402


def main() -> None:
    """Run the command line, and exit with its code, or with 130 after a Ctrl-C."""
    answer = InterruptHandler()
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end):
        signal.signal(signal.SIGINT, answer)
    code: object = 0
    try:
        from simcluster.cli.app import main as command

        answer.begins()
        try:
            command()
        except SystemExit as end:
            code = end.code
        if not answer.pressed and not any_stuck():
            answer.ends()
            sys.exit(code)  # type: ignore[arg-type]
    except BaseException:
        if not answer.pressed:
            raise
    answer.ends(has_said=code == INTERRUPTED)
    if answer.pressed:
        answer.say()
    leave(INTERRUPTED if answer.pressed else _number(code))


def _number(code: object) -> int:
    """Return the exit code that Python would use for a SystemExit with *code*."""
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    main()
