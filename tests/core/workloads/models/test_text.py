"""Text cut into windows: which text, where it is cut, and that nothing held out is trained on."""

import hashlib
from pathlib import Path

import pytest
import torch

from simcluster.errors import UsageError
from simcluster.workloads.models.text import EMBEDDED, cut, read_text


def test_the_text_in_the_package_is_the_one_that_its_provenance_names():
    provenance = EMBEDDED.with_name("PROVENANCE.md").read_text(encoding="utf-8")
    raw = read_text().numpy().tobytes()
    assert len(raw) == 616_357
    assert b"The author disclaims copyright" in raw[:200]
    assert hashlib.sha256(raw).hexdigest() in provenance
    assert hashlib.sha256(EMBEDDED.read_bytes()).hexdigest() in provenance
    assert EMBEDDED.stat().st_size < 150_000


def test_every_target_is_the_byte_after_its_input_and_every_training_byte_begins_a_window():
    text = torch.arange(100, dtype=torch.uint8)
    train, test = cut(text, context=4, most_held_out=99)
    # 90 bytes to train on: windows of 4 and the byte after them begin at 0 to 85.
    assert train.inputs[:, 0].tolist() == list(range(86))
    assert torch.equal(train.targets, train.inputs + 1)
    # 10 held out, from 90: two windows end to end, at 90 and 94; a third would lack its last target.
    assert test.inputs.tolist() == [[90, 91, 92, 93], [94, 95, 96, 97]]
    assert test.targets[-1].tolist() == [95, 96, 97, 98]


def test_windows_are_views_of_the_text():
    text = torch.zeros(1_000_000, dtype=torch.uint8)
    train, _ = cut(text, context=1000, most_held_out=1)
    assert train.inputs.shape == (899_000, 1000)
    assert train.inputs.untyped_storage().nbytes() == len(text)


def test_no_more_is_held_out_than_asked_for():
    _, test = cut(torch.zeros(1000, dtype=torch.uint8), context=10, most_held_out=3)
    assert len(test) == 3


@pytest.mark.parametrize(("length", "context"), [(100, 10), (5, 1), (1, 1)])
def test_a_text_too_short_for_one_held_out_window_is_told_the_longest_context(length: int, context: int):
    with pytest.raises(UsageError, match=f"context: found {context}, expected at most {max(0, length // 10 - 1)}, as"):
        cut(torch.zeros(length, dtype=torch.uint8), context, 1)
    if length >= 20:
        train, test = cut(torch.zeros(length, dtype=torch.uint8), length // 10 - 1, 1)
        assert len(train) > 0
        assert len(test) == 1


def test_a_file_that_is_missing_or_empty_is_told_by_name(tmp_path: Path):
    with pytest.raises(UsageError, match=r"nowhere\.txt: No such file"):
        read_text(str(tmp_path / "nowhere.txt"))
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(UsageError, match=r"empty.txt, which is empty"):
        read_text(str(tmp_path / "empty.txt"))


def test_a_file_is_mapped_with_the_bytes_that_reading_gives(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    (tmp_path / "text").write_bytes(content)
    text = read_text(str(tmp_path / "text"))
    assert text.numpy().tobytes() == content
    maps = Path("/proc/self/maps")
    if maps.is_file():
        assert str(tmp_path / "text") in maps.read_text()
    text[0] = 7  # in this process alone
    assert (tmp_path / "text").read_bytes() == content
