"""Checks of commands that read run folders: each seed damages one file of a folder.

    python -m tools.damage --seeds 1000 [--first N]

Each seed copies a simulated run, a real run, a sweep or a what-if, damages one file of the copy,
and runs one command on the copy in this process. The command must end without a traceback, with
exit code 0, or with 2 and an error message. Outside the copy and its output, the command must not
change anything.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import random
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import yaml

import simcluster
from simcluster.cli import app as cli

LINK = {"bandwidth": "1 Mbps", "latency": "1 ms"}
EXPERIMENT: dict[str, Any] = {
    "name": "damaged",
    "topology": {
        "nodes": {"n0": {"device": "raspberry-pi-4"}, "n1": {"device": "raspberry-pi-5"}},
        "links": [{"between": ["n0", "n1"], **LINK}],
    },
    "algorithm": "all_reduce_dp",
    "workload": {"name": "quadratic", "batch_size": 8},
    "stop": {"steps": 4},
    "evaluate_every": 2,
    "checkpoint": {"every": 2},
    "faults": [{"kind": "slow", "node": "n1", "at": "1 ms", "for": "1 ms", "factor": 2}],
}
SUFFIXES = {".json", ".yaml", ".parquet", ".safetensors", ".csv", ".order"}

ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1 << 62,
        1 << 70,
        10**300,
        1e300,
        -1e300,
        0.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\x1b[31m",
    ),
    *("../../elsewhere/thesis.json", "/etc/passwd", "a" * 300, [], {}, [1], {"a": 1}, [[]], ["../x"]),
)

TARGETS: dict[str, tuple[tuple[str, ...], ...]] = {
    "run": (
        ("resume", "RUN", "--set", "stop.steps=6", "--out", "OUT/resumed", "--no-report"),
        ("resume", "RUN", "--list"),
        ("export", "RUN", "--to", "tensorboard", "--into", "OUT/exported"),
        ("figure", "RUN"),
        ("figure", "RUN", "convergence", "--out", "OUT/figure.html"),
        ("figure", "RUN", "timeline", "--out", "OUT/figure.html"),
        ("replay", "RUN", "--out", "OUT/replayed", "--no-report"),
        ("compare", "RUN", "WHOLE"),
        ("compare", "WHOLE", "RUN", "--json"),
        ("report", "RUN"),
    ),
    "sweep": (
        ("report", "RUN"),
        ("figure", "RUN"),
        ("export", "RUN", "--to", "tensorboard", "--into", "OUT/exported"),
        ("sweep", "again.yaml", "--set", "seed=1,2", "--jobs", "1", "--out", "RUN", "--no-report"),
    ),
    "whatif": (
        ("report", "RUN"),
        ("figure", "RUN"),
        ("figure", "RUN", "sensitivity", "--out", "OUT/figure.html"),
    ),
    "real": (
        ("replay", "RUN", "--out", "OUT/replayed", "--no-report"),
        ("replay", "RUN", "--out", "OUT/replayed", "--no-report", "--what-if", "topology.links.n0-n1.latency=2 ms"),
        ("compare", "RUN", "WHOLE"),
        ("report", "RUN"),
    ),
}


class Ending(NamedTuple):
    """The exit *code* of a command and its standard error.

    If the command raised an exception, *code* is None and *error* is the traceback.
    """

    code: int | None
    error: str


def make(folder: Path, kinds: Sequence[str]) -> dict[str, Path]:
    """Write an undamaged folder for each of *kinds* into *folder*. Return kind -> folder."""
    makers: dict[str, Callable[[Path], object]] = {
        "run": lambda out: simcluster.run(EXPERIMENT, out=out, report=False),
        "sweep": lambda out: simcluster.sweep(EXPERIMENT, {"seed": [1, 2]}, out=out, report=False, jobs=1),
        "whatif": lambda out: simcluster.whatif(EXPERIMENT, "step-time", seeds=1, jobs=1, out=out, report=False),
        "real": lambda out: simcluster.run(EXPERIMENT, backend="sockets", out=out, report=False),
    }
    for kind in kinds:
        makers[kind](folder / kind)
    return {kind: folder / kind for kind in kinds}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def damage(path: Path, elsewhere: Path, rng: random.Random) -> str:
    """Damage the file at *path*. Return a description of the damage."""
    content = path.read_bytes()
    kinds = ["truncated", "empty", "missing", "link", "loop", "folder", "other bytes", "not UTF-8", "a flipped byte"]
    structured = path.suffix in (".json", ".yaml")
    kind = rng.choice([*kinds, *["a field"] * 12] if structured else kinds)
    if kind == "a field":
        return _change_field(path, content, rng)
    path.unlink()
    if kind == "truncated":
        path.write_bytes(content[: rng.randrange(max(1, len(content)))])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "link":
        path.symlink_to(elsewhere / "thesis.json")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "other bytes":
        path.write_bytes(rng.randbytes(200))
    elif kind == "not UTF-8":
        path.write_bytes(content[: len(content) // 2] + b"\xff\xfe\x80" + content[len(content) // 2 :])
    elif kind == "a flipped byte":
        at = rng.randrange(max(1, len(content)))
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :])
    return kind


def places(data: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of the values in *data*, but at most the first three of each list."""
    found = []
    for key in data if isinstance(data, dict) else range(min(3, len(data))) if isinstance(data, list) else ():
        found += [(data, key), *places(data[key])]
    return found


def _change_field(path: Path, content: bytes, rng: random.Random) -> str:
    document = copy.deepcopy(json.loads(content) if path.suffix == ".json" else yaml.safe_load(content))
    place, key = rng.choice(places(document))
    value = rng.choice(ODD)
    if rng.random() < 0.2:
        del place[key]
        path.write_text(json.dumps(document))
        return f"without {key}"
    place[key] = value
    path.write_text(json.dumps(document))  # JSON is valid YAML
    return f"{key}={str(value)[:40]!r}"


def call(words: Sequence[str]) -> Ending:
    """Run `simcluster` with the arguments *words* in this process."""
    out, error = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["simcluster", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always")
        try:
            cli.main()
        except SystemExit as end:
            return Ending(end.code if isinstance(end.code, int) else int(end.code is not None), error.getvalue())
        except Exception:
            return Ending(None, traceback.format_exc())
    return Ending(0, error.getvalue())


def try_seed(seed: int, whole: dict[str, Path], folder: Path) -> tuple[str, str]:
    """Return (description of the trial, problem with the end of the command or "")."""
    rng = random.Random(seed)
    kind = rng.choice(sorted(whole))
    run = folder / "run"
    out = folder / "out"
    elsewhere = folder / "elsewhere"
    shutil.copytree(whole[kind], run)
    out.mkdir()
    elsewhere.mkdir()
    (elsewhere / "thesis.json").write_text("{}")
    (folder / "again.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    files = sorted(path for path in run.rglob("*") if path.suffix in SUFFIXES)
    path = rng.choice(files)
    done = damage(path, elsewhere, rng)
    places = {"RUN": str(run), "WHOLE": str(whole[kind]), "again.yaml": str(folder / "again.yaml")}
    words = [places.get(word, word.replace("OUT", str(out))) for word in rng.choice(TARGETS[kind])]
    before = {place: contents(place) for place in (elsewhere, whole[kind])}
    names = sorted(entry.name for entry in folder.iterdir())
    end = call(words)
    about = f"seed {seed}: {kind}/{path.relative_to(run)} {done}: {' '.join(words)}"
    wrong = ""
    # The damaged experiment may still be valid, and its run may fail.
    fine = (0, 1, 2) if words[0] in ("resume", "replay", "sweep") else (0, 2)
    if end.code not in fine or "Traceback" in end.error or (end.code and not end.error.strip()) or "\x1b" in end.error:
        wrong = f"exit {end.code}: {end.error[-3000:]}"
    elif any(contents(place) != was for place, was in before.items()):
        wrong = "files elsewhere were changed"
    elif sorted(entry.name for entry in folder.iterdir()) != names:
        wrong = "something was written outside the folder"
    return about, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as base:
        whole = make(Path(base), list(TARGETS))
        for seed in range(given.first, given.first + given.seeds):
            with tempfile.TemporaryDirectory() as folder:
                about, wrong = try_seed(seed, whole, Path(folder))
            if wrong:
                failed += 1
                print(f"{about}\n  {wrong}", flush=True)
    print(f"{given.seeds} damaged folders, {failed} with an ending that they must not have")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
