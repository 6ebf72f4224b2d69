"""The fingerprint of a machine: what must be the same on all machines of a run."""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata, util
from pathlib import Path

import msgspec

from simcluster import __version__
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

OWN = ("simcluster", "simcluster_backends")
COMPARED = ("torch", "numpy")
"""What numbers depend on."""

FILES_NAMED = 5


class Fingerprint(msgspec.Struct, frozen=True):
    """*versions* by name; *files* has a digest of each source of ours by its path."""

    versions: dict[str, str]
    files: dict[str, str]


def fingerprint() -> Fingerprint:
    """Of this machine. Nothing is imported for it, so that it is there at once."""
    major_and_minor = ".".join(platform.python_version_tuple()[:2])
    versions = {"simcluster": __version__, "protocol": str(PROTOCOL_VERSION), "python": major_and_minor}
    for package in COMPARED:
        try:
            versions[package] = metadata.version(package).partition("+")[0]  # without +cpu and the like
        except metadata.PackageNotFoundError:
            versions[package] = "none"
    return Fingerprint(versions, dict(_sources()))


def differences(here: Fingerprint, there: Fingerprint) -> list[str]:
    """In words, what of *there* is not as it is *here*; no word if it may take part."""
    words = [
        f"{name} {there.versions.get(name, 'none')}, here {here.versions.get(name, 'none')}"
        for name in dict.fromkeys([*here.versions, *there.versions])
        if here.versions.get(name) != there.versions.get(name)
    ]
    differing = sorted(file for file in {**here.files, **there.files} if here.files.get(file) != there.files.get(file))
    if differing:
        more = f" and {len(differing) - FILES_NAMED} more" if len(differing) > FILES_NAMED else ""
        words.append(f"other code in {', '.join(differing[:FILES_NAMED])}{more}")
    return words


def _sources() -> list[tuple[str, str]]:
    found = []
    for package in OWN:
        spec = util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            for path in sorted(Path(folder).rglob("*.py")):
                name = f"{package}/{path.relative_to(folder).as_posix()}"
                if not name.startswith("simcluster/shipped/"):  # data of a wheel, that a checkout has elsewhere
                    found.append((name, hashlib.sha256(path.read_bytes()).hexdigest()[:16]))
    return found
