"""Errors in OpenAI's shape: a status, a type that follows from it, a message, a code."""

from __future__ import annotations

import json
from typing import Any, Final

from simcluster.web.requests import Send

TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
"""The type by status; every other one is an invalid_request_error."""

MOST_SHOWN: Final = 1000


class ApiError(Exception):
    """A request that gets *status* and *message* instead of an answer."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    def to_dict(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": str(self)[:MOST_SHOWN], "type": kind, "param": None, "code": self.code}}

    def to_json(self) -> bytes:
        return json.dumps(self.to_dict()).encode()


async def send_json(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    given = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": given})
    await send({"type": "http.response.body", "body": body})


def not_supported(what: str) -> ApiError:
    return ApiError(501, f"{what} is not supported", "not_supported")
