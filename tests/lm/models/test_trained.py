"""GPTs that a run has trained: logits against the workload's own model, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

import simcluster
from simcluster.errors import UsageError
from simcluster.lm.files.error import ModelFileError
from simcluster.lm.models.open import open_model
from simcluster.workloads.models.gpt import gpt
from tests.support.tiny_models import shards_of, through, through_shards

SIZES = {"layers": 3, "width": 48, "heads": 6, "context": 24}


def folder_of(path, settings):
    """Write the seeded model of *settings* as a run leaves it, and return that model."""
    torch.manual_seed(3)
    model = gpt(**settings).model()
    (path / "checkpoints").mkdir()
    (path / "config.yaml").write_text(yaml.safe_dump({"workload": {"name": "gpt"} | settings}))
    save_file({name: one.detach().contiguous() for name, one in model.named_parameters()},
              path / "checkpoints" / "final.safetensors")  # fmt: skip
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        SIZES,
        SIZES | {"size": "7b", "vocabulary": 256, "kv_heads": 2, "head_width": 12, "feed_forward": 100},
        SIZES | {"tokenizer": "bpe"},
    ],
    ids=["plain", "gated, grouped and untied", "bpe"],
)
def test_logits_are_those_of_the_workloads_model(tmp_path, settings):
    model = folder_of(tmp_path, settings)
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 255, 0, 8]
    expected = model(torch.tensor([tokens]))[0].detach().numpy()
    opened = open_model(str(tmp_path))
    found = through([opened.share(0, 1), opened.share(1, 3)], [tokens[:7], tokens[7:8], tokens[8:]]).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)
    if opened.config.num_key_value_heads % 2 == 0:
        halves = through_shards(shards_of(opened, 2), [tokens[:7], tokens[7:]]).numpy()
        np.testing.assert_allclose(halves, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_run_is_opened_with_its_own_weights(tmp_path):
    run = simcluster.run(
        "quickstart", workload={"name": "gpt", **SIZES}, overrides={"stop": {"steps": 2}}, out=tmp_path / "run",
        report=False,
    )  # fmt: skip
    model = open_model(str(run.folder))
    expected = run.weights()["embedding.weight"]
    assert torch.equal(model.read("embedding.weight", 0, len(expected)), expected)
    assert model.tokenizer.encode("hé") == [104, 195, 169]
    assert (model.chat, model.ends, model.name) == (None, frozenset(), "run")


def test_the_tokens_of_a_run_on_pairs_are_learnt_again(tmp_path):
    folder_of(tmp_path, SIZES | {"tokenizer": "bpe"})
    tokens = open_model(str(tmp_path)).tokenizer
    found = tokens.encode("int main(void) { return 0; }\n")
    assert tokens.decode(found) == "int main(void) { return 0; }\n"
    assert len(found) < 20  # of 29 bytes


def test_another_run_is_refused_by_name(tmp_path):
    folder_of(tmp_path, SIZES)
    (tmp_path / "config.yaml").write_text("workload: {name: mnist_mlp}")
    with pytest.raises(ModelFileError, match=r"config.yaml: workload.name: found 'mnist_mlp', expected 'gpt'"):
        open_model(str(tmp_path))
    (tmp_path / "config.yaml").write_text("workload: {name: gpt, heads: x, width: 0}")
    with pytest.raises(UsageError) as error:
        open_model(str(tmp_path))
    assert len(error.value.problems) == 2
    for text in ("[]", "workload: 3", "workload: [3]", "{"):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(UsageError, match=r"config\.yaml"):
            open_model(str(tmp_path))
    (tmp_path / "config.yaml").write_text("workload: {name: gpt}")
    with pytest.raises(ModelFileError, match=r"final.safetensors: embedding.weight: found the shape \(256, 48\)"):
        open_model(str(tmp_path)).share(0, 2)
