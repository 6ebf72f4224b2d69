"""The commands `simcluster data mnist` and `data text`, which bring data to this machine when asked."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import unquote, urlsplit

import typer
from typer import Argument, Option

from simcluster.errors import UsageError
from simcluster.paths.given_path import given_path
from simcluster.paths.inside import write_whole

SUMMARY = "Fetch data to train on; no other command does."
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"
MNIST = [
    ("train-images-idx3-ubyte.gz", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    ("train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    ("t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    ("t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
]
"""(name, bytes, SHA-256) of each file that LeCun, Cortes and Burges published in 1998."""

MOST_TEXT_BYTES = 4 << 30
PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\xfd7zX": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}

Into = Annotated[Path, Option("--into", metavar="DIR", help="The directory to write to.")]


def add_data_commands(family: typer.Typer) -> None:
    """Add the subcommands of `simcluster data` to *family*."""
    family.command()(mnist)
    family.command()(text)


def mnist(
    into: Into,
    mirror: Annotated[str, Option("--from", metavar="URL", help="A mirror that has the four files.")] = MIRROR,
) -> None:
    """Fetch MNIST's four files (12 MB), and check their SHA-256.

    A second call continues a fetch that was cut off.
    """
    from simcluster.workloads.data.fetch import check_url

    check_url(mirror, "--from")
    fetch_mnist(given_path(into, "--into"), mirror)


def fetch_mnist(folder: Path, mirror: str, files: Sequence[tuple[str, int, str]] = MNIST) -> None:
    """Save *files*, each (name, bytes, SHA-256), from the address *mirror* in *folder*, and read them.

    Raise UsageError or RunError as `simcluster.workloads.data.fetch.fetch` does.
    """
    from simcluster.workloads.data.fetch import WebFile, fetch
    from simcluster.workloads.models.idx import read_mnist_folder

    for name, size_bytes, sha256 in files:
        _, found = fetch(WebFile(f"{mirror.rstrip('/')}/{name}", name, size_bytes, sha256), folder)
        print(f"{folder / name}: {found:,} bytes, SHA-256 as published")
    images, _, held_out, _ = read_mnist_folder(folder)
    print(f"{len(images):,} training images and {len(held_out):,} held out: --set workload.data={folder.absolute()}")


def text(
    source: Annotated[str, Argument(metavar="URL|FILE", help="The address or the path of a text.")],
    into: Into,
    sha256: Annotated[
        str | None, Option(metavar="HEX", help="The text's SHA-256; a fetch that was cut off can then continue.")
    ] = None,
) -> None:
    """Fetch or copy a text, print its SHA-256, or check it."""
    from simcluster.workloads.data.fetch import WebFile, check_url, fetch

    folder = given_path(into, "--into")
    if sha256 is not None and (len(sha256) != 64 or not set(sha256.lower()) <= set("0123456789abcdef")):
        raise UsageError("--sha256", repr(sha256[:80]), "64 hexadecimal digits")
    if "://" in source:
        check_url(source, "URL")
        name = PurePosixPath(unquote(urlsplit(source).path)).name
        if not name or name.startswith(".") or not name.isprintable():
            raise UsageError("URL", repr(source), "an address that ends in the name of a file")
        given_path(folder / name, "URL")
        found, size_bytes = fetch(WebFile(source, name, MOST_TEXT_BYTES, sha256 and sha256.lower()), folder)
    else:
        path = given_path(source, "FILE")
        name = path.name
        found, size_bytes = _copied(path.resolve(), name, folder, sha256)
    with (folder / name).open("rb") as file:
        first = file.read(4)
    packed = next((kind for magic, kind in PACKED.items() if first.startswith(magic)), "")
    more = f"; it is a {packed} file, so unpack it first" if packed else ""
    print(f"{folder / name}: {size_bytes:,} bytes, SHA-256 {found}{more}")
    if not more:
        print(f"train on it: --workload gpt --set workload.data={(folder / name).absolute()}")


def _copied(path: Path, name: str, folder: Path, sha256: str | None) -> tuple[str, int]:
    """Copy the file at *path* to *folder* as *name*, and return (its SHA-256, its number of bytes)."""
    from simcluster.workloads.data.fetch import sha256_of

    if not path.is_file():
        raise UsageError("FILE", f"no file {name}", "an address or the path of a text")
    if not path.stat().st_size:
        raise UsageError("FILE", f"{name}, which is empty", "a file with text")
    found, size_bytes = sha256_of(path.parent, path.name)
    if sha256 is not None and found != sha256.lower():
        raise UsageError("--sha256", sha256, f"{found}, the SHA-256 of {path}")
    if (folder / name).exists():
        if sha256_of(folder, name)[0] == found:
            return found, size_bytes
        raise UsageError("--into", f"{folder / name}, another file", "another directory, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file:
            write_whole(folder, name, content=lambda into: shutil.copyfileobj(file, into))
    except OSError as error:
        raise UsageError("--into", f"cannot write {folder}: {error.strerror}", "another directory") from None
    return found, size_bytes
