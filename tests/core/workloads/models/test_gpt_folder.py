"""A trained GPT is loaded by transformers, and computes the same logits from the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import simcluster
from simcluster.errors import UsageError
from simcluster.workloads import gpt
from simcluster.workloads.models.gpt_folder import gpt2_folder
from simcluster.workloads.models.text import read_text, tokenizer

tokenizers = pytest.importorskip("tokenizers")

SMALL: dict[str, Any] = {"size": "tiny", "layers": 2, "width": 16, "heads": 4, "context": 32, "batch_size": 2}
TEXT = "static int  x_1 = 42;\n\tna\u00efve \u4f60\u597d   /* end */"


def files(settings: dict[str, Any]) -> dict[str, bytes]:
    """Those of an untrained model."""
    return gpt2_folder(dict(gpt(**settings).model().named_parameters()), {"name": "gpt", **settings})


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"tied": False, "feed_forward": 24}])
def test_transformers_loads_a_run_and_computes_its_logits(more: dict[str, Any], command: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    run = simcluster.run(
        topology={"generator": "star", "workers": 2}, algorithm="all_reduce_dp", stop={"steps": 3}, report=False,
        workload={"name": "gpt", **SMALL, **more}, out=tmp_path / "run",
    )  # fmt: skip
    code, out, err = command("export", "run", "--to", "transformers", "--into", "exported")
    assert (code, err) == (0, "")
    assert "from_pretrained('exported')" in out
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    ours = gpt(**SMALL, **more).model()
    ours.load_state_dict(run.weights(), strict=False)
    tokens = read_text()[1000:1032][None].long()
    with torch.no_grad():
        expected, found = ours(tokens), theirs(tokens).logits
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    text = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert text(TEXT)["input_ids"] == list(TEXT.encode())


def test_bytes_are_their_own_tokens() -> None:
    tokens = tokenizers.Tokenizer.from_str(files(SMALL)["tokenizer.json"].decode())
    assert tokens.encode(TEXT).ids == list(TEXT.encode())
    assert tokens.decode(list(TEXT.encode())) == TEXT


@pytest.mark.parametrize(("given", "tokens"), [({"vocabulary": 256}, 256), ({"vocabulary": 300}, 300), ({}, 512)])
def test_the_tokenizer_has_a_token_for_each_row_of_the_embedding(given: dict[str, int], tokens: int) -> None:
    found = tokenizers.Tokenizer.from_str(files(SMALL | {"tokenizer": "bpe"} | given)["tokenizer.json"].decode())
    assert found.get_vocab_size() == tokens


def test_pairs_of_bytes_are_merged_as_in_training(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(read_text()[:6000].numpy().tobytes())
    settings = SMALL | {"tokenizer": "bpe", "vocabulary": 400, "data": str(tmp_path / "text")}
    tokens = tokenizers.Tokenizer.from_str(files(settings)["tokenizer.json"].decode())
    text = read_text()[4000:9000].numpy().tobytes().decode() + TEXT
    expected = tokenizer(settings["data"], 400).encode(text.encode()).tolist()
    assert max(expected) > 300
    assert tokens.encode(text).ids == expected
    assert tokens.decode(expected) == text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--into", "full"], "--into: found full, which is not empty, expected a new or an empty folder"),
        ([], "--to transformers: found no --into, expected one run, and --into DIR"),
        (["run", "--into", "new"], "--to transformers: found 2 runs, expected one run, and --into DIR"),
        (["--into", "new"], "found no folder run"),
    ],
)
def test_a_wrong_request_writes_nothing(arguments: list[str], said: str, command: Any, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    code, out, err = command("export", "run", *arguments, "--to", "transformers")
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "new").exists()


def test_the_file_of_the_workload_is_copied(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    weights = dict(gpt(**SMALL).model().named_parameters())
    block = {"name": "gpt", **SMALL, "tokenizer": str(tmp_path / "mine.json")}
    assert gpt2_folder(weights, block)["tokenizer.json"] == b"{}"


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"name": "mnist_mlp"}, "found the workload mnist_mlp, expected gpt"),
        ({"name": "gpt", **SMALL, "experts": 2}, "workload.experts: found 2, expected none"),
        ({"name": "gpt", **SMALL, "kv_heads": 2}, "workload.kv_heads: found 2, expected as many as heads"),
        ({"name": "gpt", **SMALL, "head_width": 6}, "found heads that are together 24 wide, expected 16, the width of"),
        ({"name": "gpt", **SMALL, "head_width": 8, "kv_heads": 1}, "kv_heads: found 1, expected as many as heads"),
        ({"name": "gpt", **SMALL, "size": "7b", "vocabulary": 256}, "workload.size: found '7b', expected one without"),
    ],
)
def test_a_model_without_gpt_2s_form_is_refused(block: dict[str, Any], said: str) -> None:
    settings = {key: value for key, value in block.items() if key != "name"} or SMALL
    weights = dict(gpt(**settings).model().named_parameters())
    with pytest.raises(UsageError, match=said):
        gpt2_folder(weights, block)
