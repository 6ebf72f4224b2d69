"""Fetch a file by HTTP, completely or not at all. A fetch that was cut off continues at the next call."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from simcluster.errors import RunError, UsageError
from simcluster.paths.inside import PARTIAL, append_to, open_file, opened, put, remove

TIMEOUT_S = 60.0
PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class WebFile:
    """The file at *url*, to be saved as *name*; larger files than *most_bytes* are refused.

    *sha256*: the digest that the file must have. If it is None, any content is taken, and a fetch
    that was cut off begins again, since the rest could belong to another version.
    """

    url: str
    name: str
    most_bytes: int
    sha256: str | None = None


def check_url(url: str, key: str) -> None:
    """Raise UsageError, about *key*, unless *url* is an address of HTTP without a password."""
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_web = False
    if not is_web or any(not "!" <= letter <= "~" for letter in url):
        raise UsageError(key, repr(url), "an address that begins with https:// or http://, without spaces")
    if parts.username is not None or parts.password is not None:
        raise UsageError(key, "an address with a user name or password", "one without")


def fetch(file: WebFile, folder: Path) -> tuple[str, int]:
    """Save *file* in *folder*, and return (its SHA-256, its number of bytes).

    A file that is there already and has the right digest is not fetched again. Raise UsageError if
    another file has the name, RunError if the server or the disk fails, and if the content is too
    large or has another digest.
    """
    if os.path.lexists(folder / file.name):
        there = sha256_of(folder, file.name)
        if file.sha256 is None or there[0] != file.sha256:
            raise UsageError("--into", f"{folder / file.name}, another file", "another directory, or remove it")
        return there
    partial = PARTIAL + file.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = append_to(folder, partial)
    except OSError as error:
        raise UsageError("--into", f"cannot write {folder}: {error.strerror}", "another directory") from None
    try:
        with os.fdopen(number, "ab") as into:
            if file.sha256 is None:
                into.truncate(0)
            _receive(file, into)
            into.flush()
            os.fsync(into.fileno())
        found = sha256_of(folder, partial)
        if file.sha256 not in (None, found[0]):
            remove(folder, partial)
            raise RunError(f"{file.url} has the SHA-256 {found[0]}, expected {file.sha256}")
        with opened(folder) as place:
            put(place, file.name)
    except RunError:
        with suppress(OSError):
            if not os.stat(folder / partial, follow_symlinks=False).st_size:
                remove(folder, partial)
        raise
    except OSError as error:
        raise RunError(f"cannot write {folder / file.name}: {error.strerror or error}") from error
    return found


def sha256_of(folder: Path, name: str) -> tuple[str, int]:
    """Return (the SHA-256, the number of bytes) of the regular file *name* in *folder*."""
    try:
        with open_file(folder, name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size  # type: ignore[arg-type]
    except OSError as error:
        raise UsageError("--into", f"{folder / name}: {error.strerror or error}", "a regular file") from None


def _receive(file: WebFile, into: Any) -> None:
    """Append the content of *file* to *into*, from the byte where *into* ends."""
    done = into.seek(0, os.SEEK_END)
    with _answer(file.url, done) as answer:
        if answer.status != 206 or not str(answer.headers.get("Content-Range", "")).startswith(f"bytes {done}-"):
            if answer.status != 200:
                raise RunError(f"{file.url}: status {answer.status}, expected 200 or the bytes from {done} on")
            done = 0
            into.truncate(0)
        length = answer.headers.get("Content-Length")
        end = done + int(length) if length is not None and length.isdecimal() else None
        if end is not None and end > file.most_bytes:
            raise RunError(f"{file.url} has {end:,} bytes, more than {file.most_bytes:,}")
        while piece := answer.read(PIECE_BYTES):
            done += len(piece)
            if done > file.most_bytes:
                into.truncate(0)
                raise RunError(f"{file.url} has more than {file.most_bytes:,} bytes")
            into.write(piece)
        if end is not None and done < end:
            again = "the same command continues there" if file.sha256 is not None else "run the command again"
            raise RunError(f"{file.url} ended after {done:,} of {end:,} bytes; {again}")


@contextmanager
def _answer(url: str, start: int) -> Iterator[Any]:
    """Yield the answer to a request for the bytes of *url* from *start* on.

    Turn errors of the connection into RunError. If the server has no bytes from *start* on, ask for
    all.
    """
    headers = {"Accept-Encoding": "identity", "User-Agent": "simcluster"}
    ranged = headers | ({"Range": f"bytes={start}-"} if start else {})
    opener = urllib.request.build_opener(_HttpOnly)
    try:
        try:
            answer = opener.open(urllib.request.Request(url, headers=ranged), timeout=TIMEOUT_S)  # noqa: S310
        except urllib.error.HTTPError as error:
            if error.code != 416:
                raise
            error.close()
            answer = opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)  # noqa: S310
        with answer:
            yield answer
    except urllib.error.HTTPError as error:
        error.close()
        raise RunError(f"cannot fetch {url}: status {error.code} {error.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        reason = getattr(error, "reason", None) or error
        raise RunError(f"cannot fetch {url}: {reason}") from None


class _HttpOnly(urllib.request.HTTPRedirectHandler):
    """Follows redirections to HTTP alone, and from HTTPS to HTTPS alone."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        allowed = ("https://",) if req.full_url.startswith("https://") else ("https://", "http://")
        if not newurl.lower().startswith(allowed):
            raise RunError(f"cannot fetch {req.full_url}: it redirects to {newurl[:200]}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
