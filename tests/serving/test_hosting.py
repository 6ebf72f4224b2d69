"""The setup of a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from simcluster.inference.request import Request
from simcluster.serving.guessing import Guessing
from simcluster.serving.hosting import Wanted, hosted
from simcluster.serving.run import answer_all
from tests.inference.models.test_trained import SIZES, folder_of
from tests.support import clusters


def test_a_conversations_next_turn_uses_what_the_one_before_left(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES | {"context": 256})
    setup, _ = hosted(Wanted(str(tmp_path), placement="alone"), clusters.star(1))
    first = tuple(range(150))
    # The second turn computes 150 + 20 tokens, less one chunk of 128: the first one 150.
    turns = (Request("0", first, 2), Request("1", (*first, *range(20)), 2, arrival_s=100.0))
    found = answer_all(msgspec.structs.replace(setup, requests=turns), clusters.star(1))
    before_s, after_s = (found.answers[name].ttft_s for name in "01")
    assert before_s is not None
    assert after_s is not None
    assert after_s < before_s


def test_a_draft_is_served_with_its_room_and_nothing_is_predicted(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    wanted = Wanted(str(tmp_path), placement="alone", cache_bytes=10**6)
    plain, alone = hosted(wanted, clusters.star(1))
    setup, served = hosted(replace(wanted, guessing=Guessing(draft=str(tmp_path))), clusters.star(1))
    assert setup.draft is not None
    assert (setup.limits.guesses, plain.limits.guesses) == (4, 0)
    assert setup.limits.blocks == plain.limits.blocks // 2  # the same model twice
    assert served.parts[0].weights_bytes == 2 * alone.parts[0].weights_bytes
    assert alone.predict(4, 4) is not None
    assert served.predict(4, 4) is None
