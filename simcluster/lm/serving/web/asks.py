"""The bodies of requests, in OpenAI's shape."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simcluster.errors import nearest
from simcluster.lm.request import NO_LOGPROBS
from simcluster.lm.serving.web.errors import ApiError, not_supported

IGNORED: Final = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity")
"""Keys that change no token."""

DEFAULTS: Final[dict[str, tuple[Any, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "top_logprobs": (),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "reasoning_effort": ("none",),
    "web_search_options": (),
}
"""Keys of OpenAI's API that are not supported, and the values that ask for nothing."""

SHOWN: Final = 5
MOST_STOPS: Final = 16
MOST_STOP: Final = 200
MOST_MESSAGES: Final = 10_000
MOST_LIKELIEST: Final = 20
MOST_OF_A_TEXT: Final = 5
"""The most log-probabilities for each token, in a chat and in a continued text: OpenAI's limits."""

Seed = Annotated[int, Field(ge=0, lt=2**63)]
Stop = Annotated[str, Field(min_length=1, max_length=MOST_STOP)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
AskT = TypeVar("AskT", bound="GenerationRequest")


class StreamOptions(BaseModel):
    """The parts of a stream besides the answer."""

    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class GenerationRequest(BaseModel):
    """The keys of both kinds of request. Two are vLLM's: *top_k*, 0 or -1 for all tokens, and *ignore_eos*, with
    which no token ends the answer.
    """

    model_config = ConfigDict(extra="allow", strict=True)
    model: Annotated[str, Field(max_length=1000)]
    max_tokens: int | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    seed: Seed | None = None
    ignore_eos: bool | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def likeliest(self) -> int:
        """The number of likeliest tokens that come with each token; NO_LOGPROBS: not even its own log-probability."""
        return NO_LOGPROBS

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def check(self) -> None:
        """Raise ApiError for what is not supported or not known."""
        for key, value in (self.model_extra or {}).items():
            if key in IGNORED:
                continue
            if key not in DEFAULTS:
                known = [*type(self).model_fields, *DEFAULTS, *IGNORED]
                raise ApiError(400, f"unknown key {key[:100]!r}; {nearest(key, known)}", "unknown_parameter")
            if value is None:
                continue
            if not any(value == same and isinstance(value, bool) == isinstance(same, bool) for same in DEFAULTS[key]):
                raise not_supported(key)
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "stream_options needs stream: true")


class ContentPart(BaseModel):
    """A part of a message's content."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: Annotated[str, Field(max_length=100)]
    text: str | None = None


class ChatMessage(BaseModel):
    """A turn of a conversation."""

    model_config = ConfigDict(extra="allow", strict=True)
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[ContentPart], Field(max_length=MOST_MESSAGES)] | None = None

    def to_dict(self) -> dict[str, str]:
        """Return the role and the text. Raise ApiError for what is not text."""
        if self.role in ("tool", "function") or (self.model_extra or {}).get("tool_calls"):
            raise not_supported("a message of a tool")
        parts = self.content if isinstance(self.content, list) else []
        if other := next((part.type for part in parts if part.type not in ("text", "input_text")), None):
            raise not_supported(f"a content part of type {other!r}")
        text = self.content if isinstance(self.content, str) else "".join(part.text or "" for part in parts)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(GenerationRequest):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELIEST)] | None = None

    @property
    def likeliest(self) -> int:
        return (self.top_logprobs or 0) if self.logprobs else NO_LOGPROBS

    def check(self) -> None:
        super().check()
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true")


class CompletionRequest(GenerationRequest):
    """The body of /v1/completions. A *prompt* is a text or token ids."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Annotated[int, Field(ge=0, le=MOST_OF_A_TEXT)] | None = None

    @property
    def likeliest(self) -> int:
        return NO_LOGPROBS if self.logprobs is None else self.logprobs

    def only_prompt(self) -> str | list[int]:
        """Return the prompt. Raise ApiError if there are several."""
        given = self.prompt
        if isinstance(given, str) or all(isinstance(one, int) for one in given):
            return given  # type: ignore[return-value]
        if len(given) > 1:
            raise not_supported("more than one prompt")
        return given[0]  # type: ignore[return-value]


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
    """Return the body as *kind*. Raise ApiError with all that is wrong, without the found values: they may be large."""
    try:
        ask = kind.model_validate_json(body)
    except ValidationError as error:
        rows = [_row(one["loc"], one["msg"]) for one in error.errors(include_url=False, include_input=False)]
        raise ApiError(400, "; ".join(rows[:SHOWN]) + ("; ..." if len(rows) > SHOWN else "")) from None
    if isinstance(ask, GenerationRequest):
        ask.check()
    return ask


def _row(place: tuple[int | str, ...], message: str) -> str:
    where = ".".join(str(part)[:100] for part in place if not (isinstance(part, str) and "[" in part))
    return f"{where}: {message}"[:200] if where else message[:200]


def most_tokens(asked: int | None, prompt: int, context: int, default: int | None) -> int:
    """Return the limit of an answer to a prompt of that number of tokens. Raise ApiError."""
    if prompt == 0:
        raise ApiError(400, "the prompt has no token; expected at least one")
    room = context - prompt
    if room < 1:
        too_long = f"the prompt has {prompt} tokens; the context has {context}, of which the answer needs at least 1"
        raise ApiError(400, too_long, "context_length_exceeded")
    if asked is None:
        return room if default is None else min(default, room)
    if asked < 1:
        raise ApiError(400, f"max_tokens is {asked}; expected at least 1")
    if asked > room:
        both = f"{prompt} tokens of the prompt and {asked} of the answer, together {prompt + asked}"
        raise ApiError(400, f"{both}; the context has {context}", "context_length_exceeded")
    return asked
