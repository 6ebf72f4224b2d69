"""The messages of a conversation, in OpenAI's shape."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from simcluster.lm.serving.web.errors import not_supported
from simcluster.lm.serving.web.tools import MOST_TOOLS, ToolCall

MOST_MESSAGES: Final = 10_000

ROLES: Final = {"developer": "system", "tool": "user", "function": "user"}
"""Role in a request -> role for the chat template."""


class ContentPart(BaseModel):
    """A part of a message's content."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: Annotated[str, Field(max_length=100)]
    text: str | None = None


class ChatMessage(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="allow", strict=True)
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[ContentPart], Field(max_length=MOST_MESSAGES)] | None = None

    tool_calls: Annotated[list[ToolCall], Field(max_length=MOST_TOOLS)] | None = None

    def to_dict(self) -> dict[str, str]:
        """Return the role and the text. Raise ApiError for content that is not text.

        The result of a tool is a user's message: few chat templates know another role.
        """
        parts = self.content if isinstance(self.content, list) else []
        if other := next((part.type for part in parts if part.type not in ("text", "input_text")), None):
            raise not_supported(f"a content part of type {other!r}", "messages")
        text = self.content if isinstance(self.content, str) else "".join(part.text or "" for part in parts)
        role = ROLES.get(self.role, self.role)
        calls = [call.words for call in self.tool_calls or ()]
        return {"role": role, "content": "\n".join(filter(None, [text, *calls]))}
