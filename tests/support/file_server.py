"""A loopback server of files, which can be cut off, ignore ranges, or keep the length to itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FileServer:
    """*files*: path -> content. *asked*: (path, the header Range or "") of each request."""

    files: dict[str, bytes]
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent_bytes: int = 0
    cut_after: int | None = None
    has_ranges: bool = True
    tells_length: bool = True
    redirects: str = ""
    url: str = ""

    def answer(self, handler: Any) -> None:
        wanted = handler.headers.get("Range", "")
        self.asked.append((handler.path, wanted))
        content = self.files.get(handler.path)
        if self.redirects or content is None:
            handler.send_response(302 if self.redirects else 404)
            handler.send_header("Location", self.redirects)
            handler.end_headers()
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.has_ranges else 0
        if wanted and self.has_ranges and start >= len(content):
            handler.send_response(416)
            handler.end_headers()
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.tells_length:
            handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        body = content[start : None if self.cut_after is None else start + self.cut_after]
        self.sent_bytes += len(body)
        handler.wfile.write(body)


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[FileServer]:
    """Serve *files* on a free port of the loopback interface."""
    server = FileServer(files)

    class FileHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), FileHandler) as http:
        server.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
