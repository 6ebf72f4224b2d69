"""Find the models that other programs have stored on this machine, without network access.

They are in the cache of Hugging Face's hub, and in the folders of LM Studio and Ollama. Their
content is untrusted: sizes are bounded, a link is followed only from a snapshot of the hub's cache
to its blobs, and a malformed entry becomes a model with a problem.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simcluster.errors import UsageError
from simcluster.lm.files.error import MALFORMED, reason, shown
from simcluster.lm.files.hub_links import REPOSITORY, open_model_file
from simcluster.lm.headers.of_gguf import SPLIT
from simcluster.paths.inside import listed, open_file, read
from simcluster.spelling import closest

MOST_ENTRIES: Final = 20_000
MOST_MANIFEST: Final = 2**16
MOST_REVISION: Final = 100
MOST_TYPED: Final = 200
"""Limits on the names that are read in one place, on the bytes of a manifest and of a file with a
revision, and on the characters of a name that is looked up.
"""

GGUF: Final = ".gguf"
OLLAMA_BLOB: Final = "sha256-"
"""The prefix of the names of Ollama's GGUF files, which have no suffix."""

_OLLAMA_MODEL: Final = "application/vnd.ollama.image.model"
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class LocalModel:
    """A model that the program *source* has stored at *path*.

    *variant* is the name of a GGUF file, or a tag of Ollama; it is empty for a whole folder.
    *problem* says why the model is unusable, and is empty if it is usable.
    """

    source: str
    name: str
    variant: str
    path: Path
    size_bytes: int = 0
    problem: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.name}:{self.variant}" if self.variant else self.name


def places() -> list[tuple[str, str, Callable[[_Place], Iterator[LocalModel]]]]:
    """Return (program, directory, function that finds its models) for all known programs."""
    given = os.environ.get
    home = given("HF_HOME") or os.path.join(given("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    hub = given("HF_HUB_CACHE") or given("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return [
        ("hub", hub, _in_hub),
        ("LM Studio", "~/.lmstudio/models", _in_lm_studio),
        ("LM Studio", "~/.cache/lm-studio/models", _in_lm_studio),
        ("Ollama", given("OLLAMA_MODELS") or "~/.ollama/models", _in_ollama),
    ]


def local_models() -> list[LocalModel]:
    """Return the models on this machine, in the order of `places`, then by name."""
    found = []
    for source, directory, find in places():
        found += sorted(find(_Place(source, Path(os.path.expanduser(directory)))), key=lambda one: one.full_name)
    return found


def local_path(model: str, key: str, names: Collection[str], expected: str) -> str:
    """Return *model* if it is a path that exists, else the path of the local model of that name.

    Raise UsageError about *key* if no model has that name, if several have it, or if it is
    unusable. In the error, *expected* lists other valid values. *names* are further names that
    *model* may misspell.
    """
    if os.path.exists(model):
        return model
    if len(model) > MOST_TYPED:
        raise UsageError(key, f"{shown(model)}: no such file and no such name", expected)
    found = local_models()
    alike = [one for one in found if one.full_name == model]
    alike = alike or [one for one in found if one.full_name == f"{model}:latest"]
    alike = alike or [one for one in found if one.name == model]
    if not alike:
        meant = closest(model, [*names, *(one.name for one in found), *(one.full_name for one in found)])
        where = ", ".join(directory for _, directory, _ in places())
        hint = "" if meant is None else f"; did you mean {meant!r}?"
        raise UsageError(
            key,
            f"{shown(model)}: no such file and no such name",
            f"{expected}, or the name of a model in {where}{hint}",
        )
    several = sorted({one.full_name for one in alike})
    if len(several) > 1:
        raise UsageError(key, f"{model}, with {len(several)} files", f"one of {', '.join(several[:20])}")
    one = min(alike, key=lambda one: bool(one.problem))
    if one.problem:
        raise UsageError(key, f"{one.full_name} of {one.source}: {one.problem}", "a usable model")
    return str(one.path)


class _Place:
    """The directory *root* with the models of *source*. It lists at most MOST_ENTRIES names."""

    def __init__(self, source: str, root: Path) -> None:
        self.source = source
        self.root = root
        self._left = MOST_ENTRIES

    def names(self, *inner: str) -> list[str]:
        """Return the names in the directory *inner*; [] if it cannot be listed, or is a link."""
        try:
            found = listed(self.root, *inner)[: self._left]
        except (OSError, ValueError, UsageError):  # `listed` raises UsageError on Windows
            return []
        self._left -= len(found)
        return found

    def below(self, *inner: str, depth: int) -> Iterator[tuple[str, ...]]:
        """Yield the paths of the entries *depth* levels below the directory *inner*."""
        for name in self.names(*inner):
            if depth == 1:
                yield (*inner, name)
            else:
                yield from self.below(*inner, name, depth=depth - 1)


def _in_hub(place: _Place) -> Iterator[LocalModel]:
    for directory in place.names():
        if not directory.startswith(REPOSITORY):
            continue
        name = directory.removeprefix(REPOSITORY).replace("--", "/")
        try:
            revision = read(place.root, directory, "refs", "main", most_bytes=MOST_REVISION).decode().strip()
            if not _COMMIT.fullmatch(revision):
                raise ValueError(f"{shown(revision)}, no revision")
        except MALFORMED as error:
            yield LocalModel(place.source, name, "", place.root / directory, problem=f"refs/main: {reason(error)}")
            continue
        yield from _in_folder(place, name, directory, "snapshots", revision)


def _in_lm_studio(place: _Place) -> Iterator[LocalModel]:
    for path in place.below(depth=2):
        yield from _in_folder(place, "/".join(path), *path)


def _in_folder(place: _Place, name: str, *path: str) -> Iterator[LocalModel]:
    """Yield the models in the folder *path*: each GGUF file, and the folder if it has a config."""
    folder = place.root.joinpath(*path)
    names = place.names(*path)
    models: dict[str, list[str]] = {}
    for file in names:
        if file.endswith(GGUF) and "mmproj" not in file:  # mmproj: an image projector, not a language model
            split = SPLIT.fullmatch(file)
            first = file if split is None else f"{split[1]}-00001-of-{split[3]}{split[4]}"
            models.setdefault(first, []).append(file)
    weights = [file for file in names if file.endswith(".safetensors")]
    if "config.json" in names and (weights or not models):
        models[""] = ["config.json", *weights]
    for variant, files in models.items():
        sizes_bytes = []
        problem = ""
        for file in files:
            try:
                with open_model_file(folder, file) as opened:
                    sizes_bytes.append(os.fstat(opened.fileno()).st_size)
            except OSError as error:
                problem = problem or f"{file}: {reason(error)}"
        yield LocalModel(place.source, name, variant, folder / variant, sum(sizes_bytes), problem)


def _in_ollama(place: _Place) -> Iterator[LocalModel]:
    for path in place.below("manifests", depth=4):
        host, user, model, tag = path[1:]
        # Like Ollama, leave out its own registry and, for models there, the user "library".
        name = "/".join([host, user, model][0 if host != "registry.ollama.ai" else 1 if user != "library" else 2 :])
        blob = "blobs"
        size_bytes = 0
        problem = ""
        try:
            blob = _ollama_blob(json.loads(read(place.root, *path, most_bytes=MOST_MANIFEST)))
            with open_file(place.root, "blobs", blob) as file:
                size_bytes = os.fstat(file.fileno()).st_size
        except MALFORMED as error:
            problem = reason(error)
        yield LocalModel(place.source, name, tag, place.root / "blobs" / blob, size_bytes, problem)


def _ollama_blob(manifest: dict[str, list[dict[str, str]]]) -> str:
    """Return the name of the GGUF file of *manifest*.

    Raise one of MALFORMED if *manifest* is malformed or does not have exactly one.
    """
    digests = [layer["digest"] for layer in manifest["layers"] if layer["mediaType"] == _OLLAMA_MODEL]
    if len(digests) != 1:
        raise ValueError(f"{len(digests)} files of weights in the manifest, not one")
    digest = _DIGEST.fullmatch(digests[0])
    if digest is None:
        raise ValueError(f"the digest {shown(digests[0])}")
    return OLLAMA_BLOB + digest[1]
