"""Errors in OpenAI's shape: a status, its type, a message and a code."""

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
    503: "unavailable_error",
}
"""Status -> type of the error. Errors with other statuses are of type invalid_request_error."""

MOST_SHOWN: Final = 1000


class ApiError(Exception):
    """An error that is sent instead of an answer, with *status* and *message*.

    *param* is the key that is wrong in the request.
    """

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param

    def to_dict(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": str(self)[:MOST_SHOWN], "type": kind, "param": self.param, "code": self.code}}

    def to_json(self) -> bytes:
        return json.dumps(self.to_dict()).encode()


async def send_json(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


def not_supported(what: str, param: str) -> ApiError:
    """Return the error for an unsupported feature, *what*, that the key *param* requests.

    Its status is 400, because clients retry after a status of 500 or more.
    """
    return ApiError(400, f"{what} is not supported", "not_supported", param)
