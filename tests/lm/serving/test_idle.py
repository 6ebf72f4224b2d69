"""Real nodes that wait for requests."""

from __future__ import annotations

import pytest

from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.open import open_model
from simcluster.lm.request import Request
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from tests.lm.models.test_trained import SIZES, folder_of
from tests.support import clusters
from tests.support.levels import sample_of


@pytest.mark.slow
@pytest.mark.parametrize("backend", sample_of(["sockets", "torch"], 2))
def test_nodes_without_a_request_are_not_taken_for_stuck(tmp_path, backend):
    """They are idle for 5 s, and the watchdog stops nodes that are stuck for 2 s or idle for 3 s."""
    folder_of(tmp_path, SIZES)
    shape = open_model(str(tmp_path)).shape
    limits = EngineLimits(100, shape.context, shape.vocabulary)
    requests = (Request("0", (5, 6), 3), Request("1", (5, 6), 3, arrival_s=5.0))
    for layout in (PlacementLayout("pipeline", (0, 1), (1, 2)), PlacementLayout("tensor", (0, 1), (3, 3))):
        setup = Setup(str(tmp_path), shape, "f32", "real", layout, limits, is_real=True, beat_s=0.25, requests=requests)
        found = answer_all(setup, clusters.star(2), backend=backend, options={"stuck_s": 2.0, "idle_s": 3.0})
        assert found.answers["0"].tokens == found.answers["1"].tokens
        assert len(found.answers["0"].tokens) == 3
