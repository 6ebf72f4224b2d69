"""`python -m simcluster` is the command `simcluster`, and this is where both begin and end."""

import os
import signal
import sys
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    """The answer to a Ctrl-C as long as nothing has been imported that has a better one."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, say in a shell's background
    signal.signal(signal.SIGINT, _end)

from simcluster.process.exits import INTERRUPTED, any_stuck, leave  # noqa: E402
from simcluster.process.interrupts import InterruptHandler  # noqa: E402


def main() -> None:
    """The console script."""
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
    """The exit code that Python makes of what SystemExit has."""
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    main()
