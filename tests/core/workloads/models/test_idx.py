"""IDX files: read whole, or refused with what is wrong with them."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from simcluster.errors import UsageError
from simcluster.workloads import mnist_mlp
from simcluster.workloads.models.idx import read_idx, read_mnist_folder


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder: Path, train: int = 40, test: int = 20, suffix: str = "") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", train), ("t10k", test)):
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = (np.arange(count) % 10).astype(np.uint8)
    for name, array in arrays.items():
        content = idx_bytes(array)
        (folder / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)
    return arrays


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_folder_reads_back_what_was_written(tmp_path, suffix):
    written = write_mnist(tmp_path, suffix=suffix)
    for expected, found in zip(written.values(), read_mnist_folder(tmp_path), strict=True):
        assert np.array_equal(expected, found)


def test_the_digit_workload_trains_on_the_folder_it_is_given(tmp_path):
    write_mnist(tmp_path, train=40, test=20)
    workload = mnist_mlp(data=str(tmp_path), batch_size=5)
    assert len(workload.train_samples) == 40
    replica = workload.replica(0, 4, 0, epochs=1)
    # 40 images / (4 ranks * 5) = 2 steps.
    assert replica.steps == 2
    assert set(replica.evaluate()) == {"loss", "accuracy"}


def test_all_missing_files_are_told_at_once(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(UsageError) as caught:
        read_mnist_folder(tmp_path)
    assert [problem.expected for problem in caught.value.problems] == [
        "train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte or t10k-images-idx3-ubyte.gz",
    ]


GOOD = idx_bytes(np.zeros((2, 3), np.uint8))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "magic nothing"),
        (b"\x1f\x8b\x08\x00", "magic 1f 8b 08 00"),
        (bytes([0, 0, 8, 3]) + GOOD[4:], "expected 00 00 08 02"),
        (bytes([0, 0, 13, 2]) + GOOD[4:], "expected 00 00 08 02"),
        (GOOD[:9], "header cut short"),
        (GOOD[:-1], "found 5 bytes after the header, expected 6, for shape"),
        (GOOD + b"\x00", "bytes after the last value"),
        (bytes([0, 0, 8, 2]) + b"\xff" * 8, "at most 1000000000 values"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name_and_what_was_found(tmp_path, content, reason):
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=reason) as caught:
        read_idx(path, 2)
    assert caught.value.problems[0].file == str(path)


def test_gzip_that_is_cut_short_or_none_at_all_is_refused(tmp_path):
    path = tmp_path / "images.gz"
    for content in (gzip.compress(GOOD)[:-9], GOOD):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="a readable IDX file"):
            read_idx(path, 2)


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("train-images-idx3-ubyte", np.zeros((40, 27, 28), np.uint8), "found images of"),
        ("train-labels-idx1-ubyte", np.zeros(39, np.uint8), "found 39 labels, expected 40"),
        ("t10k-labels-idx1-ubyte", np.full(20, 10, np.uint8), "found label 10"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path, name, array, reason):
    write_mnist(tmp_path)
    (tmp_path / name).write_bytes(idx_bytes(array))
    with pytest.raises(UsageError, match=reason):
        read_mnist_folder(tmp_path)
