"""`python -m tools.gallery [--check] [PART...]`: draw the pictures, or check that they are current.

A PART selects the pictures with this text in their paths, such as `algorithms/` or `sync_ps`. For
screenshots of pages, see tools.gallery.pages.
"""

from __future__ import annotations

import argparse
import sys

from tools.gallery.images import images, is_current, write
from tools.gallery.pages.kept import stale as old_screenshots


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a picture is out of date")
    arguments = parser.parse_args()
    chosen = {
        name: draw
        for name, draw in images().items()
        if not arguments.parts or any(part in name for part in arguments.parts)
    }
    if not chosen:
        sys.exit(f"no picture has one of {', '.join(arguments.parts)} in its path")
    stale = []
    for name, draw in chosen.items():
        drawn = draw()
        if is_current(name, drawn):
            continue
        stale.append(name)
        if not arguments.check:
            write(name, drawn)
        print(f"{'out of date' if arguments.check else 'drawn'}: {name}", flush=True)
    print(f"{len(chosen) - len(stale)} of {len(chosen)} pictures were current")
    if arguments.check and not arguments.parts:
        stale += (found := old_screenshots())
        print(f"screenshots of pages that have changed since: {', '.join(found) or 'none'}")
    if stale and arguments.check:
        sys.exit(1)


if __name__ == "__main__":
    main()
