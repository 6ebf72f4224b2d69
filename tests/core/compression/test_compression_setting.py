"""The setting `compression`: a name or a mapping, whole in config.yaml; what is wrong is told with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pydantic
import pytest

import simcluster
from simcluster.compression import KINDS, compressor
from simcluster.compression.kinds import completed
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment

FILE = """\
topology:
  nodes: {a: {flops: 1 GFLOP/s}, b: {flops: 1 GFLOP/s}}
  links: [{between: [a, b], type: ethernet-1g}]
algorithm:
  name: all_reduce_dp
  compression: COMPRESSION
workload: quadratic
stop: {steps: 2}
"""


def read(tmp_path: Path, compression: str, **overrides: Any) -> Any:
    path = tmp_path / "e.yaml"
    path.write_text(FILE.replace("COMPRESSION", compression))
    given = {f"algorithm.compression{key and '.' + key}": value for key, value in overrides.items()}
    return read_experiment(path, given).algorithm_settings["compression"]


def problems(tmp_path: Path, compression: str, **overrides: Any) -> list[str]:
    with pytest.raises(UsageError) as error:
        read(tmp_path, compression, **overrides)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in error.value.problems]


def test_a_name_is_short_for_its_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "none") == "none"
    assert read(tmp_path, "int8") == {"kind": "int8", "block": 2048}
    assert read(tmp_path, "{kind: top_k}") == {"kind": "top_k", "fraction": 0.01, "error_feedback": True}
    assert read(tmp_path, "{kind: none}") == "none"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_complete_means_the_same_again(kind: str) -> None:
    whole = completed(kind)
    assert completed(whole) == whole
    assert json.loads(json.dumps(whole)) == whole
    assert compressor(whole) == compressor(kind)
    assert hash(compressor(kind)) == hash(compressor(whole))


def test_set_reaches_inside_also_where_the_file_has_a_name_only(tmp_path: Path) -> None:
    expected = {"kind": "top_k", "fraction": 0.1, "error_feedback": True}
    assert read(tmp_path, "top_k", fraction=0.1) == expected
    assert read(tmp_path, "{kind: top_k, fraction: 0.5}", fraction=0.1) == expected
    assert read(tmp_path, "int8", **{"": "top_k", "fraction": 0.1}) == expected
    assert read(tmp_path, "int8", **{"": {"kind": "top_k", "fraction": 0.1}}) == expected
    assert read(tmp_path, "null", kind="top_k", fraction=0.1) == expected


def test_everything_wrong_is_told_at_once_with_line_and_spelling(tmp_path: Path) -> None:
    found = problems(tmp_path, "{kind: top_k, fractoin: 0.1, fraction: 2, error_feedback: 1}")
    assert sorted(found) == [
        "e.yaml:6:30: algorithm.compression.fractoin: unknown key; did you mean 'fraction'?",
        "e.yaml:6:55: algorithm.compression.fraction: found 2, expected less than or equal to 1",
        "e.yaml:6:74: algorithm.compression.error_feedback: found 1, expected boolean",
    ]


@pytest.mark.parametrize(
    ("compression", "said"),
    [
        ("intt8", "found 'intt8', expected a kind of compression: did you mean 'int8'?"),
        (
            "{kind: topk}",
            "algorithm.compression.kind: found 'topk', expected a kind of compression: did you mean 'top_k'",
        ),
        ("{fraction: 0.1}", "expected a key kind: none, bf16, fp16, int8, "),
        ("3", "algorithm.compression: found 3, expected a kind (none, bf16, fp16, int8, "),
        ("{kind: none, block: 3}", "expected no other key with kind: none"),
        ("{kind: qsgd, levels: 128}", "algorithm.compression.levels: found 128, expected less than or equal to 127"),
        ("{kind: int8, block: 0}", "algorithm.compression.block: found 0, expected greater than 0"),
        ("{kind: top_k, fraction: .nan}", "algorithm.compression.fraction: found nan"),
        ("{kind: power_sgd, rank: '2'}", "algorithm.compression.rank: found '2', expected integer"),
        ("{kind: int8, error_feedback: true}", "unknown key; expected one of "),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(compression: str, said: str, tmp_path: Path) -> None:
    (found,) = problems(tmp_path, compression)
    assert found.startswith("e.yaml:6:")
    assert said in found


def test_an_option_is_named_where_it_is_wrong(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "top_k", fraction=2)
    assert found.startswith("algorithm.compression.fraction (set by overrides): found 2, expected less than")


def test_from_python_the_same_is_a_validation_error() -> None:
    with pytest.raises(pydantic.ValidationError, match="did you mean 'top_k'"):
        compressor("topk")


def test_the_run_folder_repeats_it(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(FILE.replace("COMPRESSION", "top_k"))
    overrides = {"algorithm.compression.fraction": 0.5}
    first = simcluster.run(tmp_path / "e.yaml", overrides=overrides, out=tmp_path / "a", report=False)
    again = simcluster.run(tmp_path / "a" / "config.yaml", out=tmp_path / "b", report=False)
    assert first.summary["trace_sha256"] == again.summary["trace_sha256"]
    assert first.summary["weights_sha256"] == again.summary["weights_sha256"]
    assert again.config["algorithm"]["compression"] == {"kind": "top_k", "fraction": 0.5, "error_feedback": True}
