"""One of the answers in a reply: its text and log-probabilities as its tokens arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from simcluster.lm.digest import ids_sha256
from simcluster.lm.engine.request_source import AnswerEnd
from simcluster.lm.request import NO_LOGPROBS
from simcluster.lm.serving.desk.request_broker import PendingAnswer, RequestBroker
from simcluster.lm.serving.web.answer_text import AnswerText
from simcluster.lm.serving.web.served_model import Language
from simcluster.lm.serving.web.token_rows import TokenRow, TokenRows
from simcluster.lm.serving.web.tools import BEGIN, call_in


@dataclass(frozen=True, slots=True)
class ChoicePiece:
    """A piece of the answer number *choice*: its *text* and *rows*, and its *end* if it is the last.

    If the answer is the *call* of a function, it has no text.
    """

    choice: int
    text: str
    rows: list[TokenRow]
    end: AnswerEnd | None
    call: dict[str, Any] | None = None

    @property
    def finish(self) -> str | None:
        """The reason for the end, in OpenAI's words."""
        if self.end is None:
            return None
        return self.end.reason if self.call is None else "tool_calls"


class Choice:
    """Answer *number* of a reply.

    *words* decodes its tokens; its text begins with *prompt*, if any. If the answer *may_call* a
    function, text that begins like a call is held back until the answer ends.
    """

    def __init__(
        self, number: int, front: RequestBroker, answer: PendingAnswer, words: AnswerText, language: Language,
        prompt: str = "", *, may_call: bool = False,
    ) -> None:  # fmt: skip
        self.number = number
        self.answer = answer
        self.tokens: list[int] = []
        self._front = front
        self._words = words
        self._language = language
        self._prompt = prompt
        self._may_call = may_call
        self._held = ""
        self._rows = TokenRows()

    def cancel(self) -> None:
        self._front.cancel(self.answer)

    async def pieces(self) -> AsyncIterator[ChoicePiece]:
        """Yield the pieces of the answer as its tokens arrive."""
        if self._prompt:
            yield ChoicePiece(self.number, self._prompt, [], None)
        end = None
        while end is None:
            tokens, end = await self.answer.more()
            text = ""
            for token in tokens:
                text += self._text_of(token)
                if self._words.is_stopped:
                    # The engine does not know the stop strings and would continue.
                    self.cancel()
                    end = AnswerEnd(self.answer.request.id, "stop")
                    break
            if end is not None:
                text += self._words.end()
            all_shown = end is not None and not self._words.is_stopped
            rows = self._rows.rest() if all_shown else self._rows.until(self._words.shown)
            if end is not None or tokens:
                yield self._piece(text, rows, end)

    def _piece(self, text: str, rows: list[TokenRow], end: AnswerEnd | None) -> ChoicePiece:
        if self._may_call and text and not self._held:
            self._may_call = text.startswith(BEGIN)
        if not self._may_call:
            return ChoicePiece(self.number, text, rows, end)
        self._held += text
        if end is None:
            return ChoicePiece(self.number, "", rows, None)
        call = call_in(self._held)
        return ChoicePiece(self.number, self._held if call is None else "", rows, end, call)

    def _text_of(self, token: int) -> str:
        """Return the text that *token* adds; store the token's log-probabilities, if it has any."""
        self.tokens.append(token)
        start = self._words.decoded
        found = self.answer.logprobs.popleft() if self.answer.request.logprobs != NO_LOGPROBS else None
        if found is not None and token not in self._language.ends:
            self._rows.add(TokenRow(token, start, found))
        return self._words.push([token])

    def timings(self) -> dict[str, Any]:
        """Return the measured latency, the seed and the hash of the tokens."""
        return {
            "ttft_s": self.answer.ttft_s,
            "tokens_per_s": self.answer.tokens_per_s,
            "seed": self.answer.request.sampling.seed,
            "token_ids_sha256": ids_sha256(self.tokens),
        }
