"""The coordinator as whoever calls it sees it: who is let in, what a worker and a launcher can do, what is told."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from simcluster_backends.sockets.coordinator import desk
from simcluster_backends.sockets.coordinator.api import make_api
from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk
from simcluster_backends.sockets.coordinator.guard import BODY_LIMIT_BYTES

from simcluster.watching.board import LinkTelemetry, NodeTelemetry, RunInfo, Telemetry
from simcluster.web.requests import host_of
from tests.support.asgi import answer_of

TOKEN = "t" * 40
QUESTIONS = ("/status", "/history", "/config", "/report", "/metrics", "/training/ready", "/openapi.json")
ACTIONS = ("/workers", "/workers/a/heartbeat", "/workers/a/leave", "/runs", "/runs/end", "/runs/report", "/telemetry")


class Calls:
    """The application without a socket, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.desk = CoordinatorDesk(5.0, lambda: self.now_s)
        self.app = make_api(self.desk, TOKEN, {"127.0.0.1", "[::1]", "localhost"})

    def __call__(self, method: str, path: str, content: Any = None, **headers: str | None) -> httpx.Response:
        given = {"Authorization": f"Bearer {TOKEN}", **headers}
        return answer_of(self.app, "http://127.0.0.1:52400", method, path, content, given)

    def get(self, path: str) -> Any:
        answer = self("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, content: Any = None) -> Any:
        answer = self("POST", path, content if content is not None else {})
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def calls() -> Calls:
    return Calls()


def telemetry_node(rank: int) -> dict[str, Any]:
    words: dict[str, Any] = NodeTelemetry(name=f"n{rank}", rank=rank, state="running").model_dump()
    return words


def begin(calls: Calls, *names: str) -> None:
    run = RunInfo(name="r", nodes=list(names), rendezvous="127.0.0.1:7000", algorithm="edp", steps=50)
    calls.post("/runs", run.model_dump())


# who is let in


@pytest.mark.parametrize("authorization", ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}"])
def test_nobody_without_the_token_is_answered_whatever_is_asked(calls: Calls, authorization: str) -> None:
    for method, paths in (("GET", QUESTIONS), ("POST", ACTIONS), ("OPTIONS", QUESTIONS), ("HEAD", QUESTIONS)):
        for path in paths:
            answer = calls(method, path, {}, Authorization=authorization)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert calls.desk.status()["workers"] == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:52400", "127.0.0.1.evil.example", "localhost.", ""])
def test_whoever_calls_it_by_another_name_is_not_answered(calls: Calls, host: str) -> None:
    # What DNS rebinding makes of a browser: the right address and port, the attacker's name.
    assert calls("GET", "/status", Host=host).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "LOCALHOST:1", "[::1]:52400"])
def test_its_own_names_are_answered_at_any_port(calls: Calls, host: str) -> None:
    assert calls("GET", "/status", Host=host).status_code == 200


def test_no_answer_may_be_read_by_another_origin(calls: Calls) -> None:
    for answer in (calls("GET", "/status", Origin="http://x"), calls("OPTIONS", "/workers", Origin="http://x")):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_nothing_changes_by_a_get(calls: Calls) -> None:
    begin(calls, "a")
    before = calls.desk.status()
    for path in (*QUESTIONS, *ACTIONS):
        calls("GET", path)
    assert calls.desk.status() == before
    assert all(calls("GET", path).status_code in (404, 405) for path in ACTIONS)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"x" * (BODY_LIMIT_BYTES + 1), 413),
        (b"{", 422),
        ({"name": "../etc"}, 422),
        ({"name": "a", "rank": 7}, 422),
        ({"name": "a" * 65}, 422),
    ],
)
def test_a_body_that_is_too_long_or_means_nothing_is_refused(calls: Calls, content: Any, code: int) -> None:
    assert calls("POST", "/workers", content).status_code == code


def bodies() -> dict[str, dict[str, Any]]:
    run = RunInfo(name="r", nodes=["a"], rendezvous="127.0.0.1:7000").model_dump()
    return {
        "/workers": {"name": "a", "address": ""},
        "/workers/a/leave": {"gone": True},
        "/workers/a/heartbeat": {},
        "/runs": run,
        "/runs/end": {"error": ""},
        "/runs/report": {"page": ""},
        "/telemetry": telemetry(1.0, 1),
    }


@pytest.mark.parametrize("path", list(ACTIONS))
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 101, "9" * 5000])
def test_a_number_that_is_none_is_refused_in_a_sentence_wherever_it_stands(
    calls: Calls, path: str, number: str
) -> None:
    begin(calls, "a", "b")
    before = calls.desk.status()
    for key in [*bodies()[path], "more"]:
        body = json.dumps(bodies()[path] | {key: "HERE"}).replace('"HERE"', f"[{number}]")
        for content in (body, body.replace(f"[{number}]", number)):
            answer = calls("POST", path, content.encode())
            assert answer.status_code == 400
            assert len(answer.json()["detail"]) < 100
    assert calls.desk.status() == before


@pytest.mark.parametrize("path", ["/workers", "/runs", "/telemetry", "/runs/end"])
@pytest.mark.parametrize("depth", [500, 900, 100_000])
def test_a_body_that_nests_deeply_is_refused_in_a_sentence(calls: Calls, path: str, depth: int) -> None:
    for key in bodies()[path]:
        body = json.dumps(bodies()[path] | {key: "HERE"}).replace('"HERE"', "[" * depth + "]" * depth)
        answer = calls("POST", path, body.encode())
        assert answer.status_code in (400, 422)
        assert len(answer.content) < 2000


@pytest.mark.parametrize(
    ("path", "change", "words"),
    [
        ("/runs", {"nodes": [f"n{rank}" for rank in range(5000)]}, "at most 4096"),
        ("/runs", {"nodes": ["a\x1b[31m"]}, "expected a name"),
        ("/runs", {"nodes": ["a", "a"]}, "a node twice"),
        ("/telemetry", {"nodes": [telemetry_node(rank) for rank in range(5000)]}, "at most 4096"),
    ],
)
def test_a_run_of_nodes_that_cannot_be_is_refused(calls: Calls, path: str, change: dict[str, Any], words: str) -> None:
    answer = calls("POST", path, bodies()[path] | change)
    assert answer.status_code == 400
    assert words in answer.json()["detail"]
    assert calls.desk.status()["workers"] == []


def test_there_is_a_limit_to_workers(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "MOST_WORKERS", 9)
    for number in range(9):
        calls.desk.register(f"w{number}", "")
    assert calls("POST", "/workers", {"name": "one-more"}).status_code == 409
    assert calls("POST", "/workers", {"name": "w7"}).status_code == 200


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("a:1", "a"),
        ("A", "a"),
        ("[::1]:7", "[::1]"),
        ("[::1]", "[::1]"),
        ("::1", "::1"),
        ("", ""),
        ("[::1]evil", "[::1]evil"),
        ("[::1]:7evil", "[::1]:7evil"),
        ("[::1]:", "[::1]"),
        ("localhost:evil", "localhost:evil"),
    ],
)
def test_the_host_is_told_from_its_port(header: str, host: str) -> None:
    assert host_of(header) == host


# what it does


def test_workers_that_come_in_any_order_have_stable_ranks_and_are_enough_or_not(calls: Calls) -> None:
    assert calls.post("/workers", {"name": "z", "address": "10.0.0.2:7000"})["rank"] == 0
    assert not calls.get("/training/ready?min_workers=2")["ready"]
    assert calls.post("/workers", {"name": "a"})["rank"] == 1
    answer = calls.get("/training/ready?min_workers=2")
    assert (answer["ready"], answer["active_workers"], answer["min_workers"], answer["run"]) == (True, 2, 2, None)
    assert [(w["worker_id"], w["rank"], w["address"]) for w in answer["workers"]] == [
        ("z", 0, "10.0.0.2:7000"),
        ("a", 1, ""),
    ]
    assert calls("GET", "/training/ready?min_workers=0").status_code == 422


def test_a_silent_worker_is_lost_after_the_time_for_that_and_has_to_register_again(calls: Calls) -> None:
    calls.post("/workers", {"name": "a"})
    calls.now_s += 5.0
    assert calls.post("/workers/a/heartbeat")["known"]
    calls.now_s += 5.001
    assert not calls.post("/workers/a/heartbeat")["known"]
    assert calls.get("/status")["workers"][0]["state"] == "lost"
    assert calls.post("/workers", {"name": "a"})["rank"] == 0


def test_a_run_gathers_goes_on_and_ends_and_ranks_are_those_of_its_list(calls: Calls) -> None:
    calls.post("/workers", {"name": "b"})
    begin(calls, "a", "b")
    run = calls.get("/training/ready")["run"]
    assert (run["rendezvous"], run["nodes"], run["state"]) == ("127.0.0.1:7000", ["a", "b"], "gathering")
    assert calls.post("/workers", {"name": "a"})["rank"] == 0
    late = calls.post("/workers", {"name": "late"})
    assert (late["rank"], late["state"]) == (None, "waiting")
    calls.post("/runs/end")
    assert calls.get("/training/ready")["run"] is None
    assert calls.get("/status")["run"]["state"] == "done"


def test_a_launcher_that_falls_silent_has_lost_its_run(calls: Calls) -> None:
    begin(calls, "a")
    calls.now_s += 5.001
    assert calls.get("/training/ready")["run"] is None
    assert calls.get("/status")["run"]["error"] == "its launcher was silent for 5 s"


def telemetry(elapsed_s: float, step: int, state: str = "running") -> dict[str, Any]:
    nodes = [
        NodeTelemetry(name="a", rank=0, state="running", step=step, loss=0.5, silent_s=0.1,
                      eval_loss=0.5, eval_accuracy=0.25, eval_step=4),
        NodeTelemetry(name="b", rank=1, state=state, step=step, loss=1.5, staleness=3.0, metrics={"lead": 2.0}),
    ]  # fmt: skip
    link = LinkTelemetry(name="a-b", bytes_forward=1000 * step, capacity_Bps=4000.0)
    found = Telemetry(elapsed_s=elapsed_s, nodes=nodes, links=[link], faults=[{"kind": "cut", "at_s": 1.0}])
    words: dict[str, Any] = found.model_dump()
    return words


def test_status_tells_how_far_everybody_is_how_busy_links_are_and_when_it_will_end(calls: Calls) -> None:
    begin(calls, "a", "b")
    for second in range(4):
        calls.post("/telemetry", telemetry(float(second), 2 * second))
    run = calls.get("/status")["run"]
    assert (run["state"], run["step"], run["steps"], run["loss"], run["steps_per_s"]) == ("running", 6, 50, 1.0, 2.0)
    assert (run["eval_loss"], run["eval_accuracy"], run["eval_step"]) == (0.5, 0.25, 4)
    assert run["predicted_end_s"] == 3.0 + (50 - 6) / 2.0
    assert run["nodes"][1]["staleness"] == 3.0
    assert run["nodes"][1]["metrics"] == {"lead": 2.0}
    assert run["faults"] == [{"kind": "cut", "at_s": 1.0}]
    # 2000 bytes a second one way, of 4000
    assert run["links"][0]["forward_Bps"] == 2000.0
    assert run["links"][0]["busy_fraction"] == 0.5
    assert [moment["elapsed_s"] for moment in calls.get("/history?after_s=1.5")] == [2.0, 3.0]


def test_prometheus_reads_the_same_numbers(calls: Calls) -> None:
    begin(calls, "a", "b")
    calls.post("/workers", {"name": "a"})
    for second in range(4):
        calls.post("/telemetry", telemetry(float(second), 2 * second, state="lost"))
    text = calls("GET", "/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["simcluster_step",] == 6.0
    assert samples["simcluster_node_loss", "b", "1"] == 1.5
    assert [samples[f"simcluster_eval_{name}",] for name in ("loss", "accuracy", "step")] == [0.5, 0.25, 4.0]
    assert samples["simcluster_node_up", "a", "0"] == 1.0
    assert samples["simcluster_node_up", "b", "1"] == 0.0
    assert samples["simcluster_link_busy_ratio", "a-b"] == 0.5
    assert samples["simcluster_run_state", "running"] == 1.0
    assert samples["simcluster_workers", "lost"] == 1.0


def test_a_number_that_is_not_finite_is_none_in_json(calls: Calls) -> None:
    begin(calls, "a")
    nodes = [NodeTelemetry(name="a", rank=0, state="running", loss=float("nan"))]
    calls.desk.telemetry(Telemetry(elapsed_s=1.0, nodes=nodes))
    assert calls.get("/status")["run"]["nodes"][0]["loss"] is None
    assert b"NaN" not in calls("GET", "/history").content


def test_a_report_is_taken_once_its_run_has_ended_and_goes_with_the_next_run(calls: Calls) -> None:
    assert calls("POST", "/runs/report", {"page": "x"}).status_code == 409
    begin(calls, "a")
    assert calls("POST", "/runs/report", {"page": "x"}).status_code == 409
    assert calls("GET", "/report").status_code == 404
    calls.post("/runs/end", {"error": ""})
    calls.post("/runs/report", {"page": "<p>x"})
    answer = calls("GET", "/report")
    assert answer.text == "<p>x"
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts")
    begin(calls, "a")
    assert not calls.get("/status")["has_report"]
