"""The routes that answer prompts, and how a prompt becomes tokens."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from dataclasses import replace
from typing import Final

from fastapi import FastAPI, Request, Response

from simcluster.errors import UsageError
from simcluster.lm.request import Request as ModelRequest
from simcluster.lm.request import seed_of_choice
from simcluster.lm.serving.desk.request_broker import Unavailable
from simcluster.lm.serving.web.answer_limits import check_ids, ends_of, most_tokens, sampling_of
from simcluster.lm.serving.web.answer_text import AnswerText
from simcluster.lm.serving.web.api_schema import ChatRequest, CompletionRequest, GenerationRequest, Prompt, parsed
from simcluster.lm.serving.web.choice import Choice
from simcluster.lm.serving.web.chunks import ReplyShape
from simcluster.lm.serving.web.errors import ApiError, not_supported
from simcluster.lm.serving.web.reply import Reply
from simcluster.lm.serving.web.served_model import ServedModel, Site

COMPLETION_TOKENS: Final = 16
"""The default of max_tokens in /v1/completions, as in OpenAI's API."""

RANDOM: Final = -1
"""The seed with which llama.cpp's clients request a random one."""

TOKEN_BYTES: Final = 16
"""Limit on the bytes of a prompt per token of the context. A token of text has about four."""


def check_name(served: ServedModel, name: str | None) -> None:
    """Raise ApiError if *name* is not that of the model *served*."""
    if name is not None and name != served.name:
        raise ApiError(404, f"no model {name[:200]!r}; this server has {served.name!r}", "model_not_found", "model")


def _check_size(site: Site, key: str, *texts: str) -> None:
    """Raise ApiError, for *key*, if *texts* are far too long for the context.

    Without this check, tokenizing them could take many seconds per MB.
    """
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    most = TOKEN_BYTES * site.placement.context
    if size > most:
        why = f"a prompt of {size} bytes; expected at most {most}, {TOKEN_BYTES} for each token of the context"
        raise ApiError(400, why, "context_length_exceeded", key)


def encoded(site: Site, text: str) -> list[int]:
    """Return the tokens of a prompt. Raise ApiError if it is far too long or cannot be encoded."""
    _check_size(site, "prompt", text)
    try:
        return site.served.language.encode(text)
    except UsageError as error:
        raise ApiError(400, str(error), param="prompt") from None


def rendered(site: Site, messages: list[dict[str, str]]) -> list[int]:
    """Return the tokens of a conversation.

    Raise ApiError if it is too long, if the model has no chat template, or if the template refuses
    it.
    """
    served = site.served
    _check_size(site, "messages", *(message["content"] for message in messages))
    if not served.language.has_chat:
        raise not_supported(f"chat with {served.name}, which has no chat template,", "messages")
    try:
        return served.language.render(messages)
    except UsageError as error:
        raise ApiError(400, f"messages: {error}", param="messages") from None


def _grammar(site: Site, ask: GenerationRequest) -> str:
    """Return the grammar of the answers to *ask*, or "" if they are free.

    Raise ApiError if a schema cannot be followed.
    """
    schema, calls = ask.json_schema, ask.calls
    key = "response_format" if calls is None else "tools"
    try:
        if calls is not None:
            return site.served.language.json_grammar(calls.schema, or_text=calls.may_be_text)
        return "" if schema is None else site.served.language.json_grammar(schema)
    except UsageError as error:
        raise ApiError(400, f"{key}: {error}", "not_supported", key) from None


class AnswerRoutes:
    """The routes that answer prompts.

    A request without a seed gets its serial number as its seed.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._numbers = itertools.count(1)

    def add(self, api: FastAPI) -> None:
        api.post("/v1/chat/completions")(self.chat)
        api.post("/v1/completions")(self.complete)

    async def chat(self, request: Request) -> Response:
        served = self._site.served
        ask = parsed(ChatRequest, await request.body())
        check_name(served, ask.model)
        messages = [message.to_dict() for message in ask.messages]
        if ask.calls is not None:
            messages = ask.calls.told(messages)
        # Use a thread: other streams must continue while a long prompt is encoded.
        prompt = await asyncio.to_thread(rendered, self._site, messages)
        shape = ReplyShape("chat", _id("chatcmpl-"), int(time.time()), served.name)
        return await self._reply(ask, "messages", [prompt], shape)

    async def complete(self, request: Request) -> Response:
        served = self._site.served
        ask = parsed(CompletionRequest, await request.body())
        check_name(served, ask.model)
        prompts = [await self._tokens_of(prompt) for prompt in ask.prompts]
        shape = ReplyShape("text", _id("cmpl-"), int(time.time()), served.name)
        return await self._reply(ask, "prompt", prompts, shape, COMPLETION_TOKENS)

    async def _tokens_of(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return await asyncio.to_thread(encoded, self._site, prompt)
        check_ids(prompt, self._site.served.vocabulary, "prompt")
        return prompt

    async def _reply(
        self, ask: GenerationRequest, key: str, prompts: list[list[int]], shape: ReplyShape, default: int | None = None
    ) -> Response:
        """Return the reply to *ask* with *prompts*, which are the value of its *key*.

        Without another limit, an answer has at most *default* tokens. Raise ApiError if the request
        is invalid, or if the server cannot take it now.
        """
        site = self._site
        grammar = await asyncio.to_thread(_grammar, site, ask)
        requests = list[ModelRequest]()
        for prompt in prompts:
            most = most_tokens(ask.limit, (key, len(prompt)), site.placement.context, default)
            ends = ends_of(ask, site.served.language.ends, site.served.vocabulary)
            sampling = sampling_of(ask, len(prompt), most, ends, site.served.vocabulary, grammar)
            seed = ask.seed if ask.seed not in (None, RANDOM) else next(self._numbers)
            for choice in range(ask.n or 1):
                name = f"{shape.id}-{len(requests)}" if requests else shape.id
                own = replace(sampling, seed=seed_of_choice(seed, choice))
                requests.append(ModelRequest(name, tuple(prompt), most, own, ends, logprobs=ask.likeliest))
        if len(requests) > site.front.most:
            raise ApiError(400, f"{len(requests)} choices; this server takes {site.front.most} requests", param="n")
        try:
            answers = site.front.ask_all(requests)
        except Unavailable as error:
            raise ApiError(503, str(error), "unavailable") from None
        language, echo = site.served.language, isinstance(ask, CompletionRequest) and ask.echo
        choices = list[Choice]()
        for number, answer in enumerate(answers):
            words = AnswerText(language.decoder(shape.kind == "chat"), language.ends, ask.stops)
            before = language.decode(answer.request.prompt) if echo else ""
            may_call = ask.calls is not None
            choices.append(Choice(number, site.front, answer, words, language, before, may_call=may_call))
        usage = ask.stream_options is not None and bool(ask.stream_options.include_usage)
        total = sum(map(len, prompts))
        return Reply(site, choices, shape, total, ask.ignored, streams=bool(ask.stream), usage=usage)


def _id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)
