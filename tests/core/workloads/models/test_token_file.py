"""A GPT on the tokens of a tokenizer.json: which tokens, which vocabulary, and what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.workloads import gpt
from simcluster.workloads.models.text import EMBEDDED, HELD_OUT
from tests.support.kept import config, hashes, play

tokenizers = pytest.importorskip("tokenizers")

TEXT = "the cat sat on the mat, and the dog lay on the cat's mat: so they were at home. " * 40
SMALL: dict[str, Any] = {"layers": 1, "width": 16, "heads": 2, "context": 8, "batch_size": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A text, and a tokenizer of 300 byte pairs that was trained on it."""
    (tmp_path / "cats.txt").write_text(TEXT, encoding="utf-8")
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator([TEXT], vocab_size=300, show_progress=False)
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_the_windows_are_the_librarys_tokens(folder: Path) -> None:
    workload = gpt(**SMALL, data=str(folder / "cats.txt"), tokenizer=str(folder / "tokenizer.json"))
    expected = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT).ids
    training = expected[: len(expected) - len(expected) // HELD_OUT]
    inputs = workload.train_samples.inputs
    assert [*inputs[0].tolist(), *inputs[8].tolist()] == expected[:16]
    assert len(inputs) == len(training) - 8
    size = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    assert 256 < size <= 300
    assert workload.model().embedding.weight.shape[0] == size


def test_a_path_is_relative_to_the_experiment_and_names_of_ours_are_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(
        "all_reduce_dp", {"name": "gpt", **SMALL, "data": "cats.txt", "tokenizer": "tokenizer.json"}, steps=2
    )
    (folder / "own.yaml").write_text(json.dumps(given))
    monkeypatch.chdir("/")
    document = read_experiment(folder / "own.yaml").document
    assert document["workload"]["tokenizer"] == str(folder / "tokenizer.json")
    assert read_experiment(given | {"workload": {"name": "gpt", **SMALL}}).document["workload"]["tokenizer"] == "bytes"
    assert len(set(hashes(play(document, folder)))) == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"vocabulary": 256}, r"vocabulary: found 256, expected at least \d+, the tokens of .*tokenizer.json"),
        ({"tokenizer": "bype"}, "cannot read .*bype: No such file or directory, expected bytes, bpe or the path"),
        ({"tokenizer": "cats.txt"}, "cats.txt, which the library cannot read: .*expected bytes, bpe or the path"),
        ({"data": EMBEDDED.name}, "data: found byte 0xfd at 0 of the text, expected UTF-8"),
    ],
)
def test_what_does_not_fit_says_what_would(settings: dict[str, Any], said: str, folder: Path) -> None:
    (folder / EMBEDDED.name).write_bytes(EMBEDDED.read_bytes())
    paths = {"data": "cats.txt", "tokenizer": "tokenizer.json"} | settings
    found = settings | {name: str(folder / paths[name]) for name in ("data", "tokenizer")}
    with pytest.raises(UsageError, match=said):
        gpt(**{**SMALL, **found})


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster.workloads.models.token_file.find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"no package tokenizers, which reads files, expected it: pip install .*\[lm\]"
    ):
        gpt(tokenizer="nowhere.json")
