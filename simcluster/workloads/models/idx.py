"""Readers of MNIST's original files: of a file in the IDX format, and of a directory with the four
files.

An IDX file has two zero bytes, a type (8 = unsigned byte), the number of dimensions, each dimension
as a big-endian 32-bit number, then the values, with the last dimension varying fastest.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from simcluster.errors import Problem, UsageError

Bytes = npt.NDArray[np.uint8]

UNSIGNED_BYTE = 8
# About twenty times the full MNIST. A larger file is damaged or hostile.
MAX_VALUES = 1_000_000_000


def read_idx(path: Path, dimensions: int) -> Bytes:
    """Return the *dimensions*-D array in *path*, unzipped if the name ends in .gz.

    Raise UsageError if the file is unreadable or damaged.
    """
    try:
        with path.open("rb") as file:
            # GzipFile reads like any binary file, but its type does not say so.
            content = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file
            return _parse(content, path, dimensions)
    except (EOFError, OSError, zlib.error) as error:
        raise _bad(path, f"{type(error).__name__}: {error}", "a readable IDX file") from error


def read_mnist_folder(folder: Path) -> tuple[Bytes, Bytes, Bytes, Bytes]:
    """Return training images (samples, 28, 28) and labels (samples,), then held-out images and
    labels.

    *folder* holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
    t10k-labels-idx1-ubyte, each as it is or compressed, with the suffix .gz. Raise UsageError with
    all missing files, or with the first damaged file.
    """
    names = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    files = {name: [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()] for name in names}
    missing = [name for name, paths in files.items() if not paths]
    if missing:
        raise UsageError([Problem("data", f"no {name} in {folder}", f"{name} or {name}.gz") for name in missing])
    paths = [found[0] for found in files.values()]
    images, labels = _pair(paths[0], paths[1])
    return images, labels, *_pair(paths[2], paths[3])


def _pair(images_path: Path, labels_path: Path) -> tuple[Bytes, Bytes]:
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != (28, 28):
        raise _bad(images_path, f"images of {images.shape[1:]}", "(28, 28)")
    if len(images) != len(labels):
        raise _bad(labels_path, f"{len(labels)} labels", f"{len(images)}, as many as {images_path.name} has images")
    if len(labels) and labels.max() > 9:
        raise _bad(labels_path, f"label {labels.max()}", "0 to 9")
    return images, labels


def _parse(file: BinaryIO, path: Path, dimensions: int) -> Bytes:
    head = file.read(4)
    if head != bytes([0, 0, UNSIGNED_BYTE, dimensions]):
        expected = f"00 00 08 {dimensions:02x}: IDX, bytes, {dimensions}-D"
        raise _bad(path, f"magic {head.hex(' ') or 'nothing'}", expected)
    sizes = file.read(4 * dimensions)
    if len(sizes) != 4 * dimensions:
        raise _bad(path, "a header cut short", f"{dimensions} sizes")
    shape = struct.unpack(f">{dimensions}I", sizes)
    values = math.prod(shape)
    if values > MAX_VALUES:
        raise _bad(path, f"shape {shape}", f"at most {MAX_VALUES} values")
    # Read one byte more than needed, to notice bytes after the last value.
    body = file.read(values + 1)
    if len(body) != values:
        found = f"{len(body)} bytes after the header" if len(body) < values else "bytes after the last value"
        raise _bad(path, found, f"{values}, for shape {shape}")
    return np.frombuffer(body, np.uint8).reshape(shape)


def _bad(path: Path, found: str, expected: str) -> UsageError:
    return UsageError("data", found, expected, file=str(path))
