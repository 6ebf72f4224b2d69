"""Headers of GGUF files: what they hold, and hostile ones."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.lm.files import gguf
from simcluster.lm.files.error import MALFORMED
from simcluster.lm.files.gguf import MOST_HEAD, read_header


def text(word):
    return struct.pack("<Q", len(word.encode())) + word.encode()


def fact(key, kind, content):
    return text(key) + struct.pack("<I", kind) + content


def header(facts, tensors=()):
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts)) + b"".join([*facts, *tensors])


FACTS = [
    fact("name", 8, text("tiné")),
    fact("layers", 4, struct.pack("<I", 2)),
    fact("words", 9, struct.pack("<IQ", 8, 2) + text("a") + text("")),
    fact("scores", 9, struct.pack("<IQ", 6, 3) + struct.pack("<3f", 1, 2, 3)),
    fact("general.alignment", 4, struct.pack("<I", 64)),
]
TENSORS = [text("w") + struct.pack("<IQQIQ", 2, 4, 3, 1, 128)]


def test_facts_and_tensors_are_those_of_the_header():
    content = header(FACTS, TENSORS)
    found = read_header(io.BytesIO(content + bytes(64)))
    scores = found.facts.pop("scores")
    assert found.facts == {"name": "tiné", "layers": 2, "words": ["a", ""], "general.alignment": 64}
    np.testing.assert_array_equal(scores, [1, 2, 3])
    # Tensors begin at the next multiple of 64 bytes; this one 128 later. Its 4 columns stand first in the file.
    begin = -(-len(content) // 64) * 64
    assert found.begin == begin
    assert (found.tensors["w"].shape, found.tensors["w"].kind, found.tensors["w"].offset) == ((3, 4), 1, begin + 128)


def test_only_the_header_is_read():
    class Counting(io.BytesIO):
        count = 0

        def read(self, size=-1):
            self.count += size
            return super().read(size)

    file = Counting(header(FACTS, TENSORS) + bytes(8 * 2**20))
    read_header(file)
    assert file.count == 2**20  # one piece, of 8 MB


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGML" + bytes(100),
        b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0),
        header([fact("a", 9, struct.pack("<IQ", 8, 2**60))]),
        header([fact("a", 9, struct.pack("<IQ", 6, 2**60))]),
        header([fact("a", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 6, 1))]),
        header([fact("a", 13, b"")]),
        header([struct.pack("<Q", MOST_HEAD) + b"a"]),
        header([], [text("w") + struct.pack("<I", 2**31)]),
        header([fact("general.alignment", 4, struct.pack("<I", 0))]),
    ],
)
def test_a_hostile_header_is_refused(content):
    with pytest.raises(ValueError):
        read_header(io.BytesIO(content))


def test_a_header_without_end_is_read_up_to_the_limit(monkeypatch):
    monkeypatch.setattr(gguf, "MOST_HEAD", 3 * 2**20)
    file = io.BytesIO(header([fact("a", 9, struct.pack("<IQ", 8, 2**19) + bytes(8 * 2**19))]))
    with pytest.raises(ValueError, match="more than 3,145,728 bytes"):
        read_header(file)
    assert file.tell() <= 4 * 2**20


@given(st.integers(0, len(header(FACTS, TENSORS)) - 1), st.binary(min_size=1, max_size=8))
def test_a_damaged_header_is_a_header_or_malformed(at, damage):
    whole = header(FACTS, TENSORS)
    for content in (whole[:at] + damage + whole[at + len(damage) :], whole[:at]):
        try:
            read_header(io.BytesIO(content))
        except MALFORMED:
            continue
