"""An algorithm explained: its words are those of the source, its bytes those that theory gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simcluster.algorithms import ALGORITHMS
from simcluster.errors import UsageError
from simcluster.lab.explain.algorithm import NO_WORDS, ExplainedAlgorithm, explain_algorithm
from tests.support.levels import sample_of

HEADERS = 0.01
"""The headers of messages are less than this share of the bytes sent."""


def sent(found: ExplainedAlgorithm, what: str) -> float:
    """The bytes of messages in a step, in models."""
    return next(one for one in found.traffic if one.what == what).bytes_per_step / found.model_bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(sorted(ALGORITHMS)))
def test_every_algorithm_has_words_a_paper_settings_and_messages(name: str) -> None:
    found = explain_algorithm(name)
    assert found.about.endswith(".")
    assert found.traffic
    assert found.phases or name in ("easgd", "one_bit_adam")
    assert all(len(phase.name + phase.text) > 10 for phase in found.phases)
    assert len(json.dumps(found.to_dict(), default=str)) < 20_000
    assert sum(bool(one.text) for one in found.settings) >= len(found.settings) / 2


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_a_ring_sends_twice_the_model_except_one_share(nodes: int) -> None:
    # 2 (n - 1) / n of the model from each of n ranks.
    found = explain_algorithm("all_reduce_dp", nodes)
    assert sent(found, "gradients") == pytest.approx(2 * (nodes - 1), rel=HEADERS)
    way = "between the two nodes" if nodes == 2 else "each node to the next one, around a ring"
    assert found.traffic[0].way == way


def test_an_interval_divides_what_is_sent_per_step() -> None:
    # A round of 10 steps has one all-reduce among 4 ranks: 2 x 3 models.
    assert sent(explain_algorithm("local_sgd", 4, {"interval": 10}), "average") == pytest.approx(0.6, rel=HEADERS)


def test_a_server_receives_from_all_and_answers_all() -> None:
    found = explain_algorithm("sync_ps", 3)
    assert {one.what: one.way for one in found.traffic} == {
        "gradients": "each node to rank 0",
        "reply": "rank 0 to every other node",
    }
    assert sent(found, "gradients") == pytest.approx(2, rel=HEADERS)


def test_phases_and_settings_are_told_in_their_order() -> None:
    found = explain_algorithm("diloco", 2)
    assert [(phase.number, phase.name) for phase in found.phases] == [
        ("Phase 1", "inner"),
        ("Phase 2", "outer gradient"),
        ("Phase 3", "outer step"),
    ]
    schedule = next(one for one in found.settings if one.name == "schedule")
    assert (schedule.default, schedule.text[:30]) == ("ring", "the schedule of the all-reduce")
    assert "Douillard et al. 2023" in found.sentences()[-1]


@pytest.mark.slow
def test_a_single_node_sends_nothing() -> None:
    assert "With 1 node, nothing is sent." in explain_algorithm("all_reduce_dp", 1).sentences()


def test_a_users_own_function_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(
        "from simcluster.algorithms import steps\n\n\n"
        "async def train(node, replica, *, twice: int = 2):\n"
        '    """Send a number to rank 0. *twice*: how often."""\n'
        "    async for step, batch in steps(replica):\n"
        "        # Phase 1, send: a number\n"
        "        # of this rank.\n"
        "        for _ in range(twice if node.rank else 0):\n"
        "            await node.send(0, 'number', None)\n"
        "        for _ in range(0 if node.rank else twice * (node.size - 1)):\n"
        "            await node.recv(tag='number')\n"
    )
    monkeypatch.chdir(tmp_path)
    found = explain_algorithm("own.py:train", 3)
    assert found.phases[0].text == "a number of this rank."
    assert [(one.name, one.default, one.text) for one in found.settings] == [("twice", 2, "how often")]
    assert [(one.what, one.way, one.messages_per_step) for one in found.traffic] == [
        ("number", "each node to rank 0", 4)
    ]


@pytest.mark.parametrize(
    ("of_file", "of_function", "said"),
    [
        (
            "",
            "",
            [f"own.py:train: {NO_WORDS}"],
        ),
        ("A page of mine.", "", ["own.py:train: A page of mine."]),
        ("", "Train *alone*.", ["own.py:train: Train alone."]),
        ("A page of mine.", "Train *alone*.", ["own.py:train: A page of mine.", "Train alone."]),
    ],
)
def test_an_own_function_is_described_by_its_file_or_its_docstring_if_there_is_one(
    of_file: str, of_function: str, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(
        f'"""{of_file}"""\n\n\nasync def train(node, replica):\n    """{of_function}"""\n'
        "    node.record(step=1, loss=0.0)\n"
    )
    monkeypatch.chdir(tmp_path)
    told = explain_algorithm("own.py:train", 2).sentences()
    assert told == [*said, "With 2 nodes, nothing is sent."]


@pytest.mark.parametrize(
    ("name", "nodes", "settings", "said"),
    [
        ("dilocco", 4, {}, "did you mean 'diloco'"),
        ("diloco", 0, {}, "--nodes: found 0"),
        ("diloco", 33, {}, "a number from 1 to 32"),
        ("diloco", 2, {"intervall": 3}, "did you mean 'interval'"),
    ],
)
def test_a_wrong_request_is_refused(name: str, nodes: int, settings: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        explain_algorithm(name, nodes, settings)
