"""The objects of OpenAI's API, and the events that carry them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"

Logprobs: TypeAlias = dict[str, Any] | None
"""The log-probabilities of a part of an answer; None if none are wanted, or it has no token."""


@dataclass(frozen=True, slots=True)
class ReplyShape:
    """The fields that all objects of one reply share, with methods that make these objects."""

    kind: Literal["chat", "text"]
    id: str
    created: int
    model: str

    def chunk(
        self, choice: int, text: str | None, finish: str | None = None, role: str | None = None,
        logprobs: Logprobs = None, call: dict[str, Any] | None = None,
    ) -> bytes:  # fmt: skip
        """Return the event of a part of an answer.

        The first part has the role, the last the reason.
        """
        found: dict[str, Any] = {"index": choice}
        if self.kind == "chat":
            delta = {"role": role} if role is not None else {}
            delta |= {"content": text} if text is not None else {}
            found["delta"] = delta | ({"tool_calls": [{"index": 0} | call]} if call is not None else {})
        else:
            found["text"] = text or ""
        return event(self._object([found | {"logprobs": logprobs, "finish_reason": finish}], is_chunk=True))

    def usage(self, usage: dict[str, int]) -> bytes:
        return event(self._object([], is_chunk=True) | {"usage": usage})

    def choice(
        self, number: int, text: str, finish: str, logprobs: Logprobs = None, call: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a whole answer as an entry of `choices`."""
        content = {"content": text} if call is None else {"content": None, "tool_calls": [call]}
        message: dict[str, Any] = {"message": {"role": "assistant"} | content}
        choice = {"index": number} | (message if self.kind == "chat" else {"text": text})
        return choice | {"logprobs": logprobs, "finish_reason": finish}

    def whole(self, choices: list[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        return self._object(choices, is_chunk=False) | {"usage": usage}

    def _object(self, choices: list[dict[str, Any]], *, is_chunk: bool) -> dict[str, Any]:
        name = "text_completion"
        if self.kind == "chat":
            name = "chat.completion.chunk" if is_chunk else "chat.completion"
        return {"id": self.id, "object": name, "created": self.created, "model": self.model, "choices": choices}


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def comment(name: str, content: dict[str, Any]) -> bytes:
    """Return *content* as a comment in an event stream, which clients of OpenAI's API ignore."""
    return f": {name} {json.dumps(content)}\n\n".encode()


def usage_of(prompt: int, answer: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
