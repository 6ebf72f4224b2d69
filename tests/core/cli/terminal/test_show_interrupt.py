"""The words of an interrupted command: what is kept, and how to continue."""

from __future__ import annotations

import traceback

import pytest

from simcluster.cli.terminal.show import progress_bar
from simcluster.errors import in_short


def test_a_ctrl_c_prints_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    end = KeyboardInterrupt()
    end.add_note("51 of 500 points are kept")
    with pytest.raises(KeyboardInterrupt), progress_bar("a", silent=True):
        raise end
    assert capsys.readouterr().err == "51 of 500 points are kept\n"


def test_a_ctrl_c_shows_no_frames_of_ours_below_the_call() -> None:
    def inner() -> None:
        try:
            raise ValueError
        except ValueError:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt) as end:
        in_short(inner)()
    assert "in inner" not in "".join(traceback.format_exception(end.value))
