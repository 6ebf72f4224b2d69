"""Whatever is damaged in a folder, every command that reads it says so in words, or needs it not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.levels import sample_of
from tools.damage import make, try_seed

SEEDS = 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make(tmp_path_factory.mktemp("whole"), ["run", "sweep"])


@pytest.mark.slow
@pytest.mark.parametrize("block", sample_of(range(5), 5))
def test_a_command_refuses_a_damaged_folder_in_words_and_touches_nothing_else(
    block: int, whole: dict[str, Path], tmp_path: Path
) -> None:
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        about, wrong = try_seed(seed, whole, folder)
        assert not wrong, about
