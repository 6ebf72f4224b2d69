"""`python -m simcluster` is the command `simcluster`, and this is where both begin.

This file knows nothing but how to get to the command: that takes a moment of importing, in which a Ctrl-C is to end
in a sentence, too.
"""

import sys


def main() -> None:
    """The console script."""
    try:
        from simcluster.cli import main as command
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    command()


if __name__ == "__main__":
    main()
