"""Model files that are cut short or have changed bytes are read, or refused with a typed error."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import pytest

from simcluster.errors import UsageError
from simcluster.lm.files.gguf import read_header
from simcluster.lm.models.open import open_model
from tests.support.gguf_models import write_gguf
from tests.support.tiny_models import TOKENS, model_of, through, write_folder


def used(model):
    """Read all weights of *model*, and compute with them if the context has room for `through`."""
    share = model.share(0, model.shape.layers)
    if model.context >= 24:
        through([share], [TOKENS])


def cut_and_changed(data, begin, turns, seed):
    """Yield *data* cut short, and with changed bytes in its header before *begin* and in its tensors."""
    for part in range(20):
        yield data[: len(data) * part // 20]
        yield data[: begin * part // 20]
    rng = random.Random(seed)
    for turn in range(turns):
        changed = bytearray(data)
        if turn % 3:
            for _ in range(rng.choice([1, 1, 3, 30])):
                changed[rng.randrange(begin)] = rng.randrange(256)
        else:
            place = rng.randrange(begin - 8)
            changed[place : place + 8] = struct.pack("<Q", rng.choice([0, 2**63 - 1, 2**63, 2**64 - 1, 2**32]))
        for _ in range(rng.choice([0, 3000])):
            changed[rng.randrange(begin, len(data))] = rng.choice([127, 255, rng.randrange(256)])
        yield bytes(changed)


@pytest.mark.parametrize(("turns", "seed"), [(8, 1), pytest.param(400, 2, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(("kind", "numbers"), [("llama", "Q8_0"), ("gpt_oss", "F16"), ("mixtral", "Q4_0"), (None, "")])
def test_damaged_files_are_read_or_refused(tmp_path, turns, seed, kind, numbers):
    if kind is None:
        opened = write_folder(tmp_path / "model", model_of("llama"))
        path = opened / "model.safetensors"
        begin = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    else:
        path = opened = write_gguf(tmp_path / "model.gguf", model_of(kind), numbers)
        with path.open("rb") as file:
            begin = read_header(file).begin
    whole = path.read_bytes()
    for number, content in enumerate(cut_and_changed(whole, begin, turns, seed)):
        path.write_bytes(content)
        with suppress(UsageError):
            used(open_model(str(opened)))
            assert number >= 40, "a file that is cut short is refused when it is opened"
    path.write_bytes(whole)
    used(open_model(str(opened)))
