"""GGUF files: written here with the package, malformed, and the real model where its package is installed."""

from __future__ import annotations

import pytest
import torch

from simcluster.errors import UsageError
from simcluster.inference.files.error import ModelFileError
from simcluster.inference.models.decoder import Part
from simcluster.inference.models.gguf_file import GgufFile
from simcluster.inference.models.open import open_model

gguf = pytest.importorskip("gguf")


def smollm2():
    try:
        return open_model("smollm2")
    except UsageError as error:
        pytest.skip(str(error))


def test_the_capital_of_france_is_paris():
    model = smollm2()
    prompt = torch.tensor(model.tokenizer.encode("The capital of France is"))
    # A stage of 10 layers and one of 20.
    stream = prompt
    for share in (model.share(0, 10), model.share(10, 30)):
        (stream,) = share.forward([Part(share.cache(16), stream)])
    assert model.tokenizer.decode([int(stream[-1].argmax())]) == " Paris"


def test_a_file_that_is_no_gguf_is_refused_by_name(tmp_path):
    path = tmp_path / "model.gguf"
    for content in (b"not a model at all, but long enough", b"GGUF" + b"\xff" * 60, b"GGUF\x03\0\0\0" + b"\xff" * 16):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.gguf: file: found .*, expected a GGUF file"):
            GgufFile(path)


@pytest.mark.parametrize("scaled", ["type", "tensor"])
def test_a_model_with_a_scaled_rotation_is_refused_instead_of_computed_wrongly(tmp_path, scaled):
    path = tmp_path / "scaled.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    if scaled == "type":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    else:
        writer.add_tensor("rope_freqs.weight", torch.ones(4).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelFileError, match="found a scaled rotation"):
        GgufFile(path)
