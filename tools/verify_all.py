"""`python -m tools.verify_all [NAME...]`: verify all algorithms, and all pages that serve a model.

All claims are checked on 1, 2, 3, 4 and 7 nodes and on both backends. This takes minutes, so the
tests check only some of them. Two commands run at a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from simcluster.algorithms import ALGORITHMS
from simcluster.lab.verify.served.page import PAGES

AT_ONCE = 2
LIMIT_S = 900.0


def _verify(name: str) -> tuple[str, float, dict[str, Any] | str]:
    """Run `simcluster verify` for *name*.

    Return (name, seconds, the command's result or its error message).
    """
    began_s = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "simcluster", "verify", name, "--json"],
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return name, LIMIT_S, f"did not end within {LIMIT_S:g} s"
    took_s = time.monotonic() - began_s
    return name, took_s, json.loads(done.stdout) if done.stdout else done.stderr


def main(names: list[str]) -> int:
    """Verify *names*, or everything if there are none. Return the exit code."""
    failing, names = 0, names or [*sorted(ALGORITHMS), *PAGES]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, took_s, said in pool.map(_verify, names):
            if isinstance(said, str):
                print(f"{name}: {said}")
                failing += 1
                continue
            verdicts = [check["verdict"] for check in said["checks"]]
            counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("holds", "fails", "not claimed"))
            print(f"{name}: {counts} ({took_s:.0f} s)", flush=True)
            for check in said["checks"]:
                if check["verdict"] == "fails":
                    print(f"  {check['name']}: {check['reason']}", flush=True)
            failing += not said["ok"]
    print(f"{failing} of {len(names)} fail" if failing else "every claim holds")
    return 1 if failing else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
