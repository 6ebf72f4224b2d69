"""Golden outputs of the examples: what they are said to take in virtual time, messages and bytes, number by number.

A change that should not alter results must leave these as they are; one that should is made visible by the diff of
tests/golden, written again by `python -m tests.whole.test_golden`. Weights and losses are left out: their last bits
differ between processors and builds of torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import simcluster
from tests.support.root import ROOT, TESTS

GOLDEN = TESTS / "golden"
EXAMPLES: dict[str, tuple[str, str | None]] = {
    "quickstart": ("experiments/quickstart.yaml", None),
    "quickstart-edp": ("experiments/quickstart.yaml", "edp"),
    "quickstart-all_reduce_dp": ("experiments/quickstart.yaml", "all_reduce_dp"),
    "own": ("experiments/own/own.yaml", None),
}


def output(example: str, folder: Path) -> dict[str, Any]:
    """What *example* prints that no processor may change; runs it in *folder*."""
    file, algorithm = EXAMPLES[example]
    summary = simcluster.run(ROOT / file, algorithm=algorithm, out=folder, report=False).summary
    assert summary["accuracy"] >= 0.9, "nine of ten held-out samples"
    whole = ("name", "algorithm", "topology", "seed", "status", "steps", "elapsed_s", "messages_sent", "bytes_sent")
    node = ("compute_s", "wait_s", "messages_sent", "bytes_sent", "bytes_received")
    return {
        **{key: summary[key] for key in whole},
        "nodes": {name: {key: numbers[key] for key in node} for name, numbers in summary["nodes"].items()},
        "links": summary["links"],
    }


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_gives_its_golden_output(example: str, tmp_path: Path) -> None:
    expected = json.loads((GOLDEN / f"{example}.json").read_text(encoding="utf-8"))
    found = output(example, tmp_path / "run")
    for part in ("nodes", "links"):
        theirs, ours = expected.pop(part), found.pop(part)
        assert list(ours) == list(theirs)
        for name, numbers in theirs.items():
            assert ours[name] == pytest.approx(numbers, rel=1e-9, abs=1e-12), f"{part} {name}"
    assert found.pop("elapsed_s") == pytest.approx(expected.pop("elapsed_s"), rel=1e-9, abs=0)
    assert found == expected


if __name__ == "__main__":
    for example in EXAMPLES:
        with TemporaryDirectory() as folder:
            text = json.dumps(output(example, Path(folder) / "run"), indent=2) + "\n"
        (GOLDEN / f"{example}.json").write_text(text, encoding="utf-8")
