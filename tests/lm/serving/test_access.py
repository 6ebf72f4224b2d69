"""Who may ask the server: the token, the page's session, no other page, no other name."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from simcluster.lm.serving.web.guard import COOKIE
from simcluster.web.login import WRONG, Login
from tests.lm.serving.scripted import PATIENT, engine, server
from tests.lm.serving.test_api import ASKED, chat, check_error

JSON = {"content-type": "application/json"}


@pytest.fixture
def codes() -> list[str]:
    return []


@pytest.fixture
def client(codes: list[str]) -> Iterator[httpx.Client]:
    login = Login(codes.append)
    login.renew()
    with (
        engine() as made,
        server(made.front, "secret", login) as running,
        httpx.Client(base_url=running.url, timeout=PATIENT) as found,
    ):
        yield found


def test_with_a_token_only_the_page_and_health_are_open(client: httpx.Client) -> None:
    for path in ("/", "/health"):
        assert client.get(path).status_code == 200, path
    for path in ("/v1/models", "/metrics", "/shelf", "/live", "/nothing"):
        check_error(client.get(path), 401, "authentication_error", "bearer token")
    check_error(chat(client), 401, "authentication_error")
    client.headers["authorization"] = "Bearer secret"
    assert chat(client).status_code == 200
    assert client.get("/metrics").status_code == 200


def test_the_printed_link_begins_a_session_from_the_page_alone(client: httpx.Client, codes: list[str]) -> None:
    origin = str(client.base_url).rstrip("/")
    code = {"code": codes[0]}
    assert client.post("/login", json=code, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/login", json=code, headers={"origin": origin}).status_code == 204
    assert set(client.cookies) == {COOKIE}
    assert client.get("/shelf").json()["name"] == "tiny"
    body = {"model": "tiny", "messages": ASKED}
    answer = client.post("/v1/chat/completions", json=body, headers={"origin": origin})
    assert answer.status_code == 200
    check_error(chat(client), 401, "authentication_error")  # a cookie alone, from where is not known
    used = client.post("/login", json=code, headers={"origin": origin})
    assert (used.status_code, used.json()) == (403, {"detail": WRONG})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),  # what a form of another page can send
        ({"host": "evil.example"}, 421),  # DNS that leads here
    ],
)
def test_another_page_asks_nothing_even_without_a_token(headers: dict[str, str], status: int) -> None:
    with engine() as made, server(made.front) as running, httpx.Client(timeout=PATIENT) as client:
        content = b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}]}'
        answer = client.post(f"{running.url}/v1/chat/completions", content=content, headers=JSON | headers)
        assert answer.status_code == status
        assert answer.json()["error"]["message"].startswith("expected ")
        assert made.seen == []


def test_the_page_runs_its_own_script_only() -> None:
    with engine() as made, server(made.front) as running:
        answer = httpx.get(running.url, timeout=PATIENT)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "/*S" not in answer.text
    assert "https://" not in answer.text
    assert "innerHTML" not in answer.text
