"""The bodies of requests, in OpenAI's shape."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simcluster.lm.request import NO_LOGPROBS
from simcluster.lm.serving.web.errors import ApiError, not_supported
from simcluster.lm.serving.web.known_keys import IGNORED, REFUSED, is_neutral
from simcluster.lm.serving.web.messages import MOST_MESSAGES, ChatMessage
from simcluster.lm.serving.web.tools import MOST_TOOLS, NamedTool, Tool, ToolUse, tool_use
from simcluster.spelling import closest

SHOWN: Final = 5
MOST_STOPS: Final = 16
MOST_STOP: Final = 200
MOST_LIKELIEST: Final = 20
MOST_OF_A_TEXT: Final = 5
MOST_BIASES: Final = 1000
MOST_CHOICES: Final = 32
"""Limits on errors in a message, stop strings, and their characters.

The next two are OpenAI's limits on log-probabilities per token, in a chat and in a completion. The
last ones are on biases of tokens, and on choices: prompts times `n`.
"""

ALIKE: Final = 0.75
"""The least similarity of an unknown key to the known one that the error suggests."""

Seed = Annotated[int, Field(ge=-1, lt=2**63)]
Stop = Annotated[str, Field(min_length=1, max_length=MOST_STOP)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)]
Bias = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
Prompt = str | list[int]


class StreamOptions(BaseModel):
    """Options for the parts of a stream other than the answer."""

    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: Literal[False] | None = None


class SchemaFormat(BaseModel):
    """A JSON schema; the name and `strict` change nothing, as all schemas are followed strictly."""

    model_config = ConfigDict(extra="allow", strict=True)
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class ResponseFormat(BaseModel):
    """The form of an answer: text, JSON, or JSON by a schema.

    As in llama.cpp, the schema may be in `schema`, also with the type json_object.
    """

    model_config = ConfigDict(extra="allow", strict=True)
    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None

    @property
    def json_of(self) -> dict[str, Any] | None:
        """The schema of the answer, which is JSON; None for text."""
        if self.type == "text":
            return None
        own = self.json_schema.schema_ if self.json_schema is not None else None
        return own or self.schema_ or {"type": "object"}


class GenerationRequest(BaseModel):
    """The keys of both kinds of request: OpenAI's, and some of vLLM and llama.cpp.

    For *top_k*, 0 and -1 allow all tokens. With *ignore_eos*, only *stop_token_ids* end the answer.
    """

    # Allow extra keys here: `check` tells unknown keys from those without effect.
    model_config = ConfigDict(extra="allow", strict=True)
    limits: ClassVar[tuple[str, ...]] = ("max_tokens", "n_predict", "num_predict")
    """The keys of the limit on the answer's tokens; the first one that is given counts."""

    model: Annotated[str, Field(max_length=1000)]
    max_tokens: int | None = None
    n_predict: int | None = None
    num_predict: int | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Factor | None = None
    repeat_penalty: Factor | None = None
    logit_bias: Annotated[dict[str, Bias], Field(max_length=MOST_BIASES)] | None = None
    seed: Seed | None = None
    ignore_eos: bool | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=MOST_STOPS)] | None = None
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def likeliest(self) -> int:
        """The number of likeliest tokens to return per token; NO_LOGPROBS if none are wanted."""
        return NO_LOGPROBS

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def calls(self) -> ToolUse | None:
        """The functions that an answer may call, or None."""
        return None

    @property
    def limit(self) -> tuple[str, int | None]:
        """The key of the limit on the answer's tokens, and the limit; None if there is none.

        In llama.cpp, -1 is no limit.
        """
        found = ((key, getattr(self, key)) for key in self.limits)
        key, most = next(((key, most) for key, most in found if most is not None), (self.limits[0], None))
        return key, None if most == -1 and key.endswith("predict") else most

    @property
    def ignored(self) -> list[str]:
        """The given keys that have no effect here."""
        return sorted(key for key, value in (self.model_extra or {}).items() if key in IGNORED and value is not None)

    @property
    def json_schema(self) -> dict[str, Any] | None:
        """The schema of an answer in JSON, or None."""
        return None if self.response_format is None else self.response_format.json_of

    def check(self) -> None:
        """Raise ApiError for a key or a value that is unknown or refused."""
        for key, value in (self.model_extra or {}).items():
            if key in REFUSED:
                if not is_neutral(key, value) and not (key == "best_of" and value == self.n):
                    raise not_supported(key, key)
            elif key not in IGNORED:
                raise ApiError(400, self._unknown(key[:100]), "unknown_parameter", key[:100])
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "stream_options needs stream: true", param="stream_options")
        if self.json_schema is not None and (self.ignore_eos or self.min_tokens):
            raise not_supported("response_format with ignore_eos or min_tokens", "response_format")

    def _unknown(self, key: str) -> str:
        meant = closest(key, [*type(self).model_fields, *REFUSED, *IGNORED], ALIKE)
        return f"unknown key {key!r}" + (f"; did you mean {meant!r}?" if meant is not None else "")


class ChatRequest(GenerationRequest):
    """The body of /v1/chat/completions."""

    limits = ("max_completion_tokens", *GenerationRequest.limits)

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: int | None = None
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELIEST)] | None = None

    @property
    def likeliest(self) -> int:
        return (self.top_logprobs or 0) if self.logprobs else NO_LOGPROBS

    @property
    def calls(self) -> ToolUse | None:
        return tool_use(self.tools, self.tool_choice)

    def check(self) -> None:
        super().check()
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
        if self.calls is not None and (self.json_schema is not None or self.ignore_eos or self.min_tokens):
            raise not_supported("tools with response_format, ignore_eos or min_tokens", "tools")


class CompletionRequest(GenerationRequest):
    """The body of /v1/completions.

    A *prompt* is text or token ids. With *echo*, an answer begins with its prompt.
    """

    prompt: str | list[str] | list[int] | list[list[int]]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_OF_A_TEXT)] | None = None

    @property
    def likeliest(self) -> int:
        return NO_LOGPROBS if self.logprobs is None else self.logprobs

    @property
    def prompts(self) -> list[Prompt]:
        prompt = self.prompt
        if isinstance(prompt, str) or all(isinstance(one, int) for one in prompt):
            return [prompt]  # type: ignore[list-item]
        return list(prompt)  # type: ignore[arg-type]

    def check(self) -> None:
        super().check()
        if self.echo and self.logprobs is not None:
            raise not_supported("echo with logprobs, which a prompt does not have,", "echo")
        choices = len(self.prompts) * (self.n or 1)
        if choices > MOST_CHOICES:
            raise ApiError(400, f"{choices} choices, prompts times n; expected at most {MOST_CHOICES}", param="prompt")


class TokenizeRequest(BaseModel):
    """The body of /tokenize: a text, or messages for the chat template."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(max_length=MOST_MESSAGES)] | None = None


class DetokenizeRequest(BaseModel):
    """The body of /detokenize."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: str | None = None
    tokens: list[int]


ModelT = TypeVar("ModelT", bound=BaseModel)


def parsed(kind: type[ModelT], body: bytes) -> ModelT:
    """Return *body* parsed as *kind*. Raise ApiError with the first SHOWN problems.

    The error's message leaves out the values, which may be large.
    """
    try:
        ask = kind.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        rows = [_row(one["loc"], one["msg"]) for one in found[: SHOWN + 1]]
        message = "; ".join(rows[:SHOWN]) + ("; ..." if len(rows) > SHOWN else "")
        raise ApiError(400, message, param=_key(found[0]["loc"])) from None
    if isinstance(ask, GenerationRequest):
        ask.check()
    return ask


def _row(place: tuple[int | str, ...], message: str) -> str:
    """Return *message* with its *place*, without the type names that pydantic adds for unions."""
    where = ".".join(str(part)[:100] for part in place if not (isinstance(part, str) and "[" in part))
    return f"{where}: {message}"[:200] if where else message[:200]


def _key(place: tuple[int | str, ...]) -> str | None:
    """Return the key of a request at *place*, such as `messages[0].role`.

    Return None for a body that is not an object.
    """
    match place:
        case ("messages", int(number), str(key), *_):
            return f"messages[{number}].{key[:100]}"
        case ("stream_options" | "response_format" as outer, str(key), *_):
            return f"{outer}.{key[:100]}"
        case (str(key), *_):
            return key[:100]
    return None
