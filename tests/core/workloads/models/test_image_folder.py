"""A directory of images in the place of MNIST's files: what is read, how it is split, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from simcluster.errors import UsageError
from simcluster.workloads.models.image_folder import read_image_folder
from simcluster.workloads.models.mnist import DEVIATION, MEAN, load_mnist


def draw(path: Path, grey: int, size: tuple[int, int] = (28, 28)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, grey).save(path)


def test_classes_are_numbered_by_name_and_every_fifth_image_of_each_is_held_out(tmp_path: Path) -> None:
    """Eleven images of bags and six of boots: the numbers 4 and 9 of the first, and 4 of the second, are held out."""
    for name, count in (("boot", 6), ("bag", 11)):
        for number in range(count):
            draw(tmp_path / name / f"{number:02}.png", 10 * number)
    train, test = load_mnist(str(tmp_path))
    assert torch.equal(test.targets, torch.tensor([0, 0, 1]))
    assert torch.equal(torch.bincount(train.targets), torch.tensor([9, 5]))
    expected = (torch.tensor([40, 90, 40]) / 255 - MEAN) / DEVIATION
    torch.testing.assert_close(test.inputs, expected[:, None].expand(3, 784))


def test_a_split_of_the_users_own_is_taken_and_colours_become_grey(tmp_path: Path) -> None:
    for name in "0", "1":
        draw(tmp_path / "train" / name / "a.png", 7)
        draw(tmp_path / "test" / name / "b.jpg", 200)
    Image.new("RGB", (28, 28), (255, 255, 255)).save(tmp_path / "train" / "1" / "b.bmp")
    images, labels, held_out, of_held_out = read_image_folder(tmp_path)
    assert labels.tolist() == [0, 1, 1]
    assert of_held_out.tolist() == [0, 1]
    assert [int(image[0, 0]) for image in images] == [7, 7, 255]
    assert np.ptp(held_out) <= 1


def test_other_files_and_links_are_passed_over(tmp_path: Path) -> None:
    for number in range(5):
        draw(tmp_path / "in" / "x" / f"{number}.png", number)
    draw(tmp_path / "out.png", 99)
    (tmp_path / "in" / "x" / "notes.txt").write_text("none")
    (tmp_path / "in" / "x" / "9.png").symlink_to(tmp_path / "out.png")
    (tmp_path / "in" / ".cache").mkdir()
    (tmp_path / "in" / "y").symlink_to(tmp_path / "in" / "x")
    images, *_ = read_image_folder(tmp_path / "in")
    assert [int(image[0, 0]) for image in images] == [0, 1, 2, 3]


def test_a_folder_with_idx_files_is_mnists_whatever_else_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "train-labels-idx1-ubyte").touch()
    with pytest.raises(UsageError, match="no t10k-labels-idx1-ubyte in"):
        load_mnist(str(tmp_path))


def test_all_slips_are_told_at_once(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "large.png", 0, (32, 30))
    (tmp_path / "a" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    Image.fromarray(np.full((28, 28), 9000, np.uint16)).save(tmp_path / "a" / "deep.png")  # grey would be white
    with pytest.raises(UsageError) as slips:
        read_image_folder(tmp_path)
    broken, deep, large = map(str, slips.value.problems)
    assert "deep.png, with more than 8 bits a pixel, expected images of 8 bits" in deep
    assert "broken.png, which cannot be read" in broken
    assert "large.png, of 32 x 30 pixels, expected images of 28 x 28" in large


def test_a_huge_image_is_refused_by_its_header(tmp_path: Path) -> None:
    """A PPM that claims 10^10 pixels: they are never decoded."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bomb.ppm").write_bytes(b"P6 100000 100000 255\n")
    with pytest.raises(UsageError, match=r"bomb\.ppm"):
        read_image_folder(tmp_path)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([f"{name}/0.png" for name in "abcdefghijk"], r"11 classes in .*, expected 1 to 10"),
        (["a/0.png", "a/1.png"], "fewer than 5 images in each class"),
        (["train/a/0.png", "test/b/0.png"], "other classes in .*/test than in .*/train, expected the same: a"),
        (["a/0.png", "b/0.gif"], r"no image in .*/b, expected files ending in .png"),
    ],
)
def test_a_folder_that_does_not_fit_says_what_would(files: list[str], said: str, tmp_path: Path) -> None:
    for name in files:
        draw(tmp_path / name, 0)
    with pytest.raises(UsageError, match=said):
        read_image_folder(tmp_path)
