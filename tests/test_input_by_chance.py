"""An experiment with anything anywhere: it is read, or refused with a typed error."""

from __future__ import annotations

import copy
import random
from contextlib import suppress
from typing import Any

import pytest

from simcluster.documents.yaml import parse_value
from simcluster.errors import SimclusterError, UsageError
from simcluster.experiment.read.read import read_experiment

VALUES = (
    *(
        "0",
        "-1",
        "1e23",
        "9" * 900,
        "0x" + "f" * 800,
        "1e308",
        "1e-320",
        ".nan",
        ".inf",
        "true",
        "null",
        "''",
        "[]",
        "{}",
    ),
    *(
        "[[[[]]]]",
        "{a: {b: {}}}",
        "x" * 100_000,
        "1e-320 Gbps",
        "1e300 Tbps",
        "1e30 h",
        "-0 s",
        "1e-18 s",
        '"\\e[31m\\0"',
    ),
    *("1000000000", "1e18 GB", "/etc/passwd", "'/etc/passwd:f'", "[1, 2]", "ünï", "1 s", "1 Gbps", "4294967296"),
    "[{kind: flap, link: n1-sw, at: 0 s, for: 1e30 h, period: 1e-18 s}]",
    "[{kind: hang, node: n1, at: 1e30 h, for: 1e-18 s, every: 1e-18 s, times: 10000}]",
)
WHOLE: dict[str, Any] = {
    "topology": {
        "name": "t",
        "nodes": {
            "n0": {
                "device": "raspberry-pi-4",
                "profile": {"mnist_mlp/gradient": "1 ms"},
                "send_overhead": "1 us",
                "straggler": {"kind": "markov", "factor": 2, "slow": "10 ms", "fast": "10 ms"},
            },
            "n1": {"flops": "1 GFLOP/s", "memory": "1 GB"},
            "sw": {"kind": "switch"},
        },
        "links": [
            {"between": ["n0", "sw"], "bandwidth": "1 Mbps", "latency": "1 ms"},
            {"between": ["n1", "sw"], "type": "gigabit-ethernet"},
        ],
    },
    "algorithm": {"name": "edp", "pull_interval": 2},
    "workload": {"name": "quadratic", "features": 10},
    "seed": 1,
    "stop": {"steps": 5},
    "evaluate_every": 10,
    "faults": [{"kind": "crash", "node": "n1", "at": "1 ms"}],
    "checkpoint": {"every": 3, "keep": 2},
}
GENERATED = {"generator": "torus", "rows": 2, "columns": 2, "bandwidth": "1 Gbps", "latency": "1 us"}


def places(data: Any) -> list[tuple[Any, Any]]:
    """(mapping or list, key) of every value in *data*."""
    found = []
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        found += [(data, key), *places(data[key])]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_an_experiment_with_anything_anywhere_is_read_or_refused_with_a_typed_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        document = copy.deepcopy(WHOLE)
        if rng.random() < 0.3:
            document |= {"topology": dict(GENERATED), "faults": []}
        place, key = rng.choice(places(document))
        place[key] = _value(rng.choice(VALUES))
        with suppress(SimclusterError):
            read_experiment(document)


def _value(text: str) -> Any:
    try:
        return parse_value(text)
    except UsageError:
        return text
