"""The objects of OpenAI's API, and the events that carry them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"

Logprobs: TypeAlias = dict[str, Any] | None
"""The log-probabilities of a part of an answer; None if they are not asked for, or if it has no token."""


@dataclass(frozen=True, slots=True)
class ReplyShape:
    """Makes the objects of one answer."""

    kind: Literal["chat", "text"]
    id: str
    created: int
    model: str

    def chunk(
        self, text: str | None, finish: str | None = None, role: str | None = None, logprobs: Logprobs = None
    ) -> bytes:
        """Return the event of a part of the answer; the first has the role, the last the reason it ended."""
        choice: dict[str, Any] = {"index": 0}
        if self.kind == "chat":
            delta = {"role": role} if role is not None else {}
            choice["delta"] = delta | ({"content": text} if text is not None else {})
        else:
            choice["text"] = text or ""
        return event(self._object([choice | {"logprobs": logprobs, "finish_reason": finish}], is_chunk=True))

    def usage(self, usage: dict[str, int]) -> bytes:
        return event(self._object([], is_chunk=True) | {"usage": usage})

    def whole(self, text: str, finish: str, usage: dict[str, int], logprobs: Logprobs = None) -> dict[str, Any]:
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text}}
        choice = {"index": 0} | (said if self.kind == "chat" else {"text": text})
        choice |= {"logprobs": logprobs, "finish_reason": finish}
        return self._object([choice], is_chunk=False) | {"usage": usage}

    def _object(self, choices: list[dict[str, Any]], *, is_chunk: bool) -> dict[str, Any]:
        name = "text_completion"
        if self.kind == "chat":
            name = "chat.completion.chunk" if is_chunk else "chat.completion"
        return {"id": self.id, "object": name, "created": self.created, "model": self.model, "choices": choices}


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def comment(name: str, content: dict[str, Any]) -> bytes:
    """Return a line that clients of OpenAI's API ignore."""
    return f": {name} {json.dumps(content)}\n\n".encode()


def usage_of(prompt: int, answer: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
