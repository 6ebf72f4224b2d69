"""Functions that a model may call: their description in the prompt, and the calls in its answers.

A call is an answer that begins with { : JSON with the name of a function and its arguments. A
grammar enforces this, so it works with any chat template.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from simcluster.lm.serving.web.errors import ApiError

MOST_TOOLS: Final = 128
MOST_DESCRIPTION: Final = 10_000

BEGIN: Final = "{"
"""The beginning of an answer that is a call."""

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class FunctionTool(BaseModel):
    """A function; *parameters* is the JSON schema of its arguments."""

    model_config = ConfigDict(extra="allow", strict=True)
    name: Name
    description: Annotated[str, Field(max_length=MOST_DESCRIPTION)] | None = None
    parameters: dict[str, Any] | None = None

    @property
    def call_schema(self) -> dict[str, Any]:
        """The schema of a call of this function."""
        parameters = self.parameters or {"type": "object"}
        own = {"name": {"const": self.name}, "arguments": parameters}
        return {"type": "object", "properties": own, "required": [*own], "additionalProperties": False}


class Tool(BaseModel):
    """A tool of a request, which can only be a function."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: Literal["function"]
    function: FunctionTool


class FunctionName(BaseModel):
    """The name of a function."""

    model_config = ConfigDict(extra="allow", strict=True)
    name: Name


class NamedTool(BaseModel):
    """A choice of the function that the model must call."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: Literal["function"]
    function: FunctionName


class CalledFunction(BaseModel):
    """The function of a call in an earlier answer; *arguments* are JSON."""

    model_config = ConfigDict(extra="allow", strict=True)
    name: Name
    arguments: str


class ToolCall(BaseModel):
    """A call in an earlier answer."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: Literal["function"] = "function"
    function: CalledFunction

    @property
    def words(self) -> str:
        """The call as the model wrote it."""
        return f'{{"name": {json.dumps(self.function.name)}, "arguments": {self.function.arguments}}}'


@dataclass(frozen=True)
class ToolUse:
    """The *functions* that an answer may call; it must call one unless it *may_be_text*."""

    functions: Sequence[FunctionTool]
    may_be_text: bool

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of a call."""
        return {"anyOf": [one.call_schema for one in self.functions]}

    @property
    def words(self) -> str:
        """The description of the functions for the model."""
        rows = [
            json.dumps({"name": one.name, "description": one.description or "", "parameters": one.parameters or {}})
            for one in self.functions
        ]
        otherwise = " Otherwise answer with text." if self.may_be_text else ""
        how = f'To call a function, answer only with {{"name": NAME, "arguments": ARGUMENTS}}.{otherwise}'
        return "\n".join([how, "Functions:", *rows])

    def told(self, messages: Sequence[dict[str, str]]) -> list[dict[str, str]]:
        """Return *messages* with the description of the functions in the system message."""
        if messages[0]["role"] == "system":
            return [messages[0] | {"content": f"{messages[0]['content']}\n\n{self.words}"}, *messages[1:]]
        return [{"role": "system", "content": self.words}, *messages]


def tool_use(tools: Sequence[Tool] | None, choice: str | NamedTool | None) -> ToolUse | None:
    """Return the functions that an answer may call, or None.

    Raise ApiError if *choice* requires a function that *tools* does not have.
    """
    functions = [tool.function for tool in tools or ()]
    if isinstance(choice, NamedTool):
        named = [one for one in functions if one.name == choice.function.name]
        if not named:
            raise ApiError(400, f"no function {choice.function.name!r} in tools", param="tool_choice")
        return ToolUse(named, may_be_text=False)
    if not functions and choice == "required":
        raise ApiError(400, "tool_choice is required; expected tools", param="tool_choice")
    return None if not functions or choice == "none" else ToolUse(functions, may_be_text=choice != "required")


def call_in(text: str) -> dict[str, Any] | None:
    """Return the call that *text* is, in OpenAI's shape, or None if it is incomplete or no call."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() != {"name", "arguments"}:
        return None
    function = {"name": found["name"], "arguments": json.dumps(found["arguments"])}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}
