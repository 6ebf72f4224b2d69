"""Render chat templates: the program of the process that `renderer` starts.

The text of messages must stay distinct from what the template itself writes, although a template
may slice, strip and compare strings. So the template gets strings that behave like plain ones in
these operations, but print a BREAK around each character. Thus what it prints of them cannot form a
special token.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from typing import Any, Final

from jinja2 import Template, TemplateError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from simcluster.lm.text.renderer import CPU_S, MEMORY_BYTES, MOST_CHARACTERS
from simcluster.lm.text.tokens import BREAK

TODAY: Final = date(2024, 7, 26)
"""The date in all prompts, fixed so that equal requests get equal answers.

It is the default date of Llama's templates.
"""


class MessageText(str):
    """A string that prints with breaks; its methods return what those of the plain string would."""

    _plain: str

    @classmethod
    def of(cls, plain: Any) -> Any:
        if isinstance(plain, (list, tuple)):
            return type(plain)(map(cls.of, plain))
        if isinstance(plain, Iterator):
            return map(cls.of, plain)
        if not isinstance(plain, str):
            return plain
        made = cls(re.sub(r"\S+", lambda word: f"{BREAK}{BREAK.join(word[0])}{BREAK}", plain))
        made._plain = plain
        return made


def _answering(name: str) -> Any:
    def answer(self: MessageText, *given: Any, **named: Any) -> Any:
        return MessageText.of(getattr(self._plain, name)(*(getattr(one, "_plain", one) for one in given), **named))

    return answer


_PRINTING = ("encode", "format", "join", "maketrans", "translate")
for _name in ("__contains__", "__eq__", "__ne__", "__getitem__", "__iter__", "__len__", *filter(str.isalpha, dir(str))):
    if _name not in _PRINTING:
        setattr(MessageText, _name, _answering(_name))


class PlainNamespace(Namespace):
    """A namespace that refuses names with a leading underscore, such as `__class__`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__()
        for name, value in dict(*given, **named).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise TemplateError(f"a namespace with the name {name}")
        super().__setitem__(name, value)


class Generation(Extension):
    """The tag around an assistant's words, which are learnt in training. It has no effect here."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise(sentence: str) -> None:
    raise TemplateError(sentence)


def _json(value: Any, **layout: Any) -> str:
    return json.dumps(value, **{"ensure_ascii": False, **layout})


@lru_cache
def compiled(source: str) -> Template:
    """Return the template *source*. Raise TemplateError if it is malformed."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = _json
    made.globals |= {"namespace": PlainNamespace, "raise_exception": _raise, "strftime_now": TODAY.strftime}
    del made.filters["random"], made.globals["lipsum"]  # they are random
    return made.from_string(source)


def conversation(source: str, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any]) -> str:
    """Return what the template *source* prints for *messages*, with breaks in text from messages.

    Without messages, only compile the template and return "". Raise TemplateError if the template
    is malformed, prints too much, or changes text from messages so that it cannot be told from its
    own.
    """
    template = compiled(source)
    if not messages:
        return ""
    plain = template.render(messages=messages, **variables)
    if len(plain) > MOST_CHARACTERS:
        raise TemplateError(f"it prints more than {MOST_CHARACTERS:,} characters")
    hidden = [{**one, "content": MessageText.of(one["content"])} for one in messages]
    marked = template.render(messages=hidden, **variables)
    if marked.replace(BREAK, "") != plain:
        raise TemplateError("it changes texts of messages in such a way that they cannot be told from its own")
    return marked


def main() -> None:
    if sys.platform != "win32":
        import resource

        with suppress(ValueError, OSError):  # macOS does not support this limit
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        for line in sys.stdin.buffer:
            signal.setitimer(signal.ITIMER_PROF, CPU_S)  # the signal ends the process, even within an operation
            try:
                answer = {"text": conversation(**json.loads(line))}
            except MemoryError:
                answer = {"error": f"it takes more than {MEMORY_BYTES:,} bytes of memory"}
            except Exception as error:
                answer = {"error": str(error) or type(error).__name__}
            signal.setitimer(signal.ITIMER_PROF, 0)
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
