"""Reader of a directory of images, with a directory for each class, in the place of MNIST's files.

Either DIR/CLASS/IMAGE, in which case every fifth image of a class is held out, or DIR/train/CLASS/IMAGE and
DIR/test/CLASS/IMAGE. The sorted names of the classes are the labels 0, 1, ... Links are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from simcluster.errors import MOST_PROBLEMS, Problem, UsageError, raise_all
from simcluster.process.installed import install_extra
from simcluster.workloads.models.idx import MAX_VALUES, Bytes

SIDE, CLASSES = 28, 10
HELD_OUT = 5
FORMATS = ("PNG", "JPEG", "BMP", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm")
SPLIT = ["test", "train"]


def has_classes(folder: Path) -> bool:
    """Return whether *folder* has directories and no IDX file, so that it is a directory of images."""
    return bool(_directories(folder)) and not any(folder.glob("*-idx?-ubyte*"))


def read_image_folder(folder: Path) -> tuple[Bytes, Bytes, Bytes, Bytes]:
    """Return training images (samples, 28, 28) in grey and labels (samples,), then held-out images
    and labels.

    Raise UsageError, with all problems, if there are too many classes or images, if a class has no
    image, or if an image is unreadable or of another size; also if Pillow is not installed.
    """
    if find_spec("PIL") is None:
        raise UsageError("data", "no package pillow, which reads images", f"it: {install_extra('images')}")
    if _directories(folder) == SPLIT:
        train, test = folder / "train", folder / "test"
        classes = _directories(train)
        if classes != _directories(test):
            raise UsageError("data", f"other classes in {test} than in {train}", "the same: " + ", ".join(classes[:20]))
        return *_read(train, classes), *_read(test, classes)
    images, labels = _read(folder, _directories(folder))
    numbers = np.concatenate([np.arange(count) for count in np.bincount(labels)])
    held_out = numbers % HELD_OUT == HELD_OUT - 1
    if not held_out.any():
        raise UsageError("data", f"fewer than {HELD_OUT} images in each class of {folder}", f"{HELD_OUT} in some class")
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def _read(folder: Path, classes: Sequence[str]) -> tuple[Bytes, Bytes]:
    """Return the images and labels of all *classes* in *folder*, by class and name."""
    if not 1 <= len(classes) <= CLASSES:
        raise UsageError("data", f"{len(classes)} classes in {folder}", f"1 to {CLASSES}, a directory for each")
    files = [_images(folder / name) for name in classes]
    problems = [
        Problem("data", f"no image in {folder / name}", f"files ending in {', '.join(SUFFIXES)}")
        for name, found in zip(classes, files, strict=True)
        if not found
    ]
    count = sum(map(len, files))
    if count * SIDE**2 > MAX_VALUES:
        problems.append(Problem("data", f"{count} images in {folder}", f"at most {MAX_VALUES // SIDE**2}"))
    raise_all(problems)
    images = np.empty((count, SIDE, SIDE), np.uint8)
    for number, path in enumerate(path for found in files for path in found):
        if (problem := _load(path, images[number])) is not None:
            problems.append(problem)
            if len(problems) > MOST_PROBLEMS:
                break
    raise_all(problems)
    labels = np.repeat(np.arange(len(classes), dtype=np.uint8), [len(found) for found in files])
    return images, labels


def _load(path: Path, into: Bytes) -> Problem | None:
    """Fill *into* with the grey pixels of the image at *path*, or return what is wrong with it."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.size != (SIDE, SIDE):  # known before the pixels are decoded
                found = f"{path}, of {image.width} x {image.height} pixels"
                return Problem("data", found, f"images of {SIDE} x {SIDE}")
            if image.mode.startswith(("I", "F")):  # Pillow cuts these values off at 255
                return Problem("data", f"{path}, with more than 8 bits a pixel", "images of 8 bits a channel")
            into[:] = np.asarray(image.convert("L"))
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        return Problem("data", f"{path}, which cannot be read: {error}", f"an image: {', '.join(FORMATS)}")
    return None


def _directories(folder: Path) -> list[str]:
    return sorted(entry.name for entry in _shown(folder) if entry.is_dir(follow_symlinks=False))


def _images(folder: Path) -> list[Path]:
    names = sorted(entry.name for entry in _shown(folder) if entry.is_file(follow_symlinks=False))
    return [folder / name for name in names if name.lower().endswith(SUFFIXES)]


def _shown(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of *folder* that are not hidden."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise UsageError("data", f"cannot read {folder}: {error.strerror}", "") from None
