"""`python -m tools.gallery.terminal.record`: records the commands of the README's terminal.

The recording keeps their output and the time that each command takes.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

from simcluster.process.kernels import numerics
from tests.support.root import ROOT

DATA = ROOT / "docs" / "figures" / "data" / "terminal.json"
COMMANDS = (
    "simcluster run quickstart --out runs/sim",
    "simcluster run quickstart --backend sockets --out runs/real",
    "simcluster compare runs/sim runs/real",
)


def record(command: str, folder: Path) -> dict[str, Any]:
    """Run *command* in *folder*. Return the command, its output, and its duration."""
    name, *words = shlex.split(command)
    full = [sys.executable, "-m", name, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "96"}
    began_s = time.perf_counter()
    done = subprocess.run(full, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return {"command": command, "output": done.stdout, "took_s": round(time.perf_counter() - began_s, 1)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        recorded = [record(command, Path(folder)) for command in COMMANDS]
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    content = {"recorded_on": date.today().isoformat(), "system": system, "numerics": numerics(), "commands": recorded}
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(DATA.relative_to(ROOT))


if __name__ == "__main__":
    main()
