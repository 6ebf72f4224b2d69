"""The server-sent events of a streamed answer: their lines, within limits, and their chunks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

MOST_LINE: Final = 2**20
MOST_BYTES: Final = 2**26
"""Limits on the bytes of a line and of a whole answer."""

DONE: Final = "[DONE]"


class BrokenAnswer(Exception):
    """A failed answer: the *kind* of failure that it counts as, and a *detail* for the user."""

    def __init__(self, kind: str, detail: str = "") -> None:
        self.kind = kind
        self.detail = detail
        super().__init__(f"{kind}: {detail}")


@dataclass(frozen=True, slots=True)
class AnswerChunk:
    """A piece of an answer: whether it *has_text* and is the *last*, and any token counts."""

    has_text: bool
    last: bool
    prompt_tokens: int | None = None
    output_tokens: int | None = None


async def data_of(parts: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield the data of each event in *parts*; skip comments and other fields.

    Raise BrokenAnswer if a limit is exceeded.
    """
    rest = bytearray()
    size = 0
    async for part in parts:
        size += len(part)
        rest += part
        *lines, rest = rest.split(b"\n") if b"\n" in part else [rest]
        if size > MOST_BYTES or len(rest) > MOST_LINE:
            raise BrokenAnswer("too large", f"more than {MOST_BYTES:,} bytes, or a line of more than {MOST_LINE:,}")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").decode(errors="replace").strip()


def chunk_of(data: str) -> AnswerChunk:
    """Return the chunk that the JSON text *data* describes.

    Raise BrokenAnswer if *data* is an error or not a chunk.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BrokenAnswer("malformed", f"no JSON: {data[:80]!r}") from None
    if not isinstance(found, dict):
        raise BrokenAnswer("malformed", f"no chunk: {data[:80]!r}")
    if found.get("error"):
        raise BrokenAnswer("error chunk", message_of(found))
    choices = found.get("choices")
    if not isinstance(choices, list) or not all(isinstance(one, dict) for one in choices[:1]):
        raise BrokenAnswer("malformed", f"no choices: {data[:80]!r}")
    usage = found.get("usage")
    counts = [_count(usage, name) for name in ("prompt_tokens", "completion_tokens")]
    choice: dict[str, Any] = choices[0] if choices else {}
    delta = choice.get("delta")
    texts = [choice.get("text"), *(map(delta.get, ("content", "reasoning_content")) if isinstance(delta, dict) else ())]
    return AnswerChunk(any(texts), bool(choice.get("finish_reason")), *counts)


def message_of(found: Any) -> str:
    """Return the message of an error in OpenAI's or a similar shape.

    It is truncated to 200 characters, and unprintable ones are removed.
    """
    error = found.get("error", found) if isinstance(found, dict) else found
    text = error.get("message", error) if isinstance(error, dict) else error
    return "".join(filter(str.isprintable, str(text)[:200]))


def _count(usage: Any, name: str) -> int | None:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= MOST_BYTES else None
