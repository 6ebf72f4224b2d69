"""Measures simcluster on the accelerator of this machine: `python -m tools.accelerators`.

Needs Python, torch and transformers, and no network. The wheels of missing packages are in the
folder WHEELS, made on a machine with a network:

    python -m tools.accelerators --make-wheels WHEELS
    python -m tools.accelerators --wheels WHEELS --table accelerators.csv

Each part runs in a child process with a time limit, and its rows are on disk as soon as they are
known. `--device cpu` runs everything at a smaller size on a machine without an accelerator. The
exit code is 1 if a row failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tools.accelerator_parts.children import end
from tools.accelerator_parts.context import PartContext
from tools.accelerator_parts.rows import Row, append, read, start

ROOT = Path(__file__).resolve().parents[1]
IN_PARTS = "tools.accelerator_parts"
CODE = "import sys; from tools.accelerators import child; child(*sys.argv[1:])"


class Part(NamedTuple):
    """A part of the program: its *function*, as "module:name", and the most seconds it may take."""

    function: str
    limit_s: float


PARTS = {
    "packages": Part(f"{IN_PARTS}.packages:install", 35.0),
    "card": Part(f"{IN_PARTS}.packages:card", 30.0),
    "device tests": Part(f"{IN_PARTS}.suite:device_tests", 80.0),
    "sockets": Part(f"{IN_PARTS}.training:sockets", 90.0),
    "torch": Part(f"{IN_PARTS}.training:torch_backend", 65.0),
    "prediction": Part(f"{IN_PARTS}.training:prediction", 75.0),
    "generate": Part(f"{IN_PARTS}.inference:generate", 100.0),
}
"""All limits together are under eight minutes."""


def child(function: str, device: str, folder: str, table: str, wheels: str) -> None:
    """Run the part *function* in this process."""
    module, _, name = function.partition(":")
    context = PartContext(device, Path(folder), Path(table), Path(wheels) if wheels else None)
    getattr(import_module(module), name)(context)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a child: it imports this checkout, and the packages in *folder*."""
    paths = [str(ROOT), str(ROOT / "backends"), str(folder / "site"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }


def run_part(name: str, part: Part, at: PartContext) -> None:
    """Run *part* in a child process. Append a row if it crashes or exceeds its limit."""
    start_s = time.monotonic()
    words = [sys.executable, "-c", CODE, part.function, at.device, str(at.folder), str(at.table), str(at.wheels or "")]
    process = subprocess.Popen(words, cwd=at.folder, env=environment(at.folder), start_new_session=True)
    why = ""
    try:
        code = process.wait(part.limit_s)
        if code:
            why = f"the process of this part ended with {code}"
    except subprocess.TimeoutExpired:
        why = f"cut off at its limit of {part.limit_s:g} s"
    finally:
        end(process)
    if why:
        append(at.table, Row(name, status="failed", seconds=time.monotonic() - start_s, why=why))


def main(words: Sequence[str] | None = None) -> int:
    """Run the chosen parts and return the exit code."""
    parser = argparse.ArgumentParser(description="Measure simcluster on the accelerator of this machine.")
    parser.add_argument("--device", choices=("cuda", "mps", "cpu"), default="cuda")
    parser.add_argument("--wheels", type=Path, help="a folder with wheels of packages that this machine lacks")
    parser.add_argument("--table", type=Path, default=Path("accelerators.csv"), help="the file for the results")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--make-wheels", type=Path, metavar="WHEELS", help="download the wheels, and do nothing else")
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME", help="packages that need not travel")
    given = parser.parse_args(words)
    if given.make_wheels:
        from tools.accelerator_parts.packages import make_wheels

        return make_wheels(given.make_wheels, given.without)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a child is killed, too
    table = given.table.resolve()
    start(table)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="accelerators-") as folder:
        context = PartContext(given.device, Path(folder), table, given.wheels and given.wheels.resolve())
        for name in given.only or PARTS:
            run_part(name, PARTS[name], context)
    rows = read(table)
    failed = [row["part"] for row in rows if row["status"] == "failed"]
    print(f"{len(rows)} rows in {table}, {len(failed)} failed, {time.monotonic() - began_s:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
