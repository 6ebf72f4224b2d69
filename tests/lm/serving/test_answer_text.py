"""Text leaves as its tokens arrive, except what may become a stop string or a character."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simcluster.lm.serving.web.answer_text import AnswerText
from tests.lm.serving.scripted import END, BytesDecoder


def said(text: str, stops: list[str]) -> list[str]:
    words = AnswerText(BytesDecoder(), {END}, stops)
    return [*(words.push([token]) for token in text.encode()), words.end()]


def test_what_may_become_a_stop_string_is_held_back_and_comes_if_it_does_not() -> None:
    assert "".join(said("a<b<c", ["<b>"])) == "a<b<c"
    assert said("ab", ["bc"]) == ["a", "", "b"]


def test_nothing_follows_a_stop_string() -> None:
    assert said("one STOP two", ["STOP"])[:4] == ["o", "n", "e", " "]
    assert "".join(said("one STOP two", ["STOP"])) == "one "
    assert "".join(said("aab", ["b", "aab"])) == ""  # of two that end together, the longer one counts


def test_a_character_of_three_bytes_comes_whole_and_an_end_token_says_nothing() -> None:
    assert said("€", []) == ["", "", "€", ""]
    words = AnswerText(BytesDecoder(), {END}, [])
    assert words.push([*b"a", END]) == "a"
    assert words.push([0xE2]) + words.end() == "�"


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3))
def test_the_pieces_are_the_text_up_to_the_first_stop(text: str, stops: list[str]) -> None:
    places = [(place, stop) for stop in stops if (place := text.find(stop)) >= 0]
    # A stop is found when its last character arrives; of those complete then, the earliest beginning counts.
    ends = [place + len(stop) for place, stop in places]
    first = min(ends, default=None)
    expected = text if first is None else text[: min(place for place, stop in places if place + len(stop) == first)]
    assert "".join(said(text, stops)) == expected
