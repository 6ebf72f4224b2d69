"""Requests from elsewhere get nothing: another name, another page, a path out of the folder, a code used twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from simcluster.lab.ui.guard import BODY_LIMIT_BYTES
from simcluster.web.login import Login
from tests.lab.ui.served import Asked, write_made_up

START = {"experiment": "quickstart"}


def test_a_name_that_is_not_this_services_gets_nothing_though_it_leads_here(tmp_path: Path) -> None:
    ask = Asked(tmp_path)
    assert ask("GET", "/api/runs", Host="localhost:52480").status_code == 200
    for path in ("/", "/static/ui.js", "/api/runs", "/files/a/report.html"):
        assert ask("GET", path, Host="evil.example").status_code == 421, path


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": None}, 403),
        ({"Origin": "null"}, 403),  # a sandboxed report
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),  # another service of this machine
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Content_Type": "text/plain"}, 415),  # what a form of another page can send
    ],
)
def test_another_page_starts_and_stops_nothing(tmp_path: Path, headers: dict[str, Any], code: int) -> None:
    ask = Asked(tmp_path)
    for path, content in (("/api/start", START), ("/api/stop", {"id": "a"})):
        assert ask("POST", path, content, **headers).status_code == code
    assert ask.children.all() == []


def test_a_body_is_bounded_whether_or_not_it_states_its_length(tmp_path: Path) -> None:
    long = b"[" + b" " * BODY_LIMIT_BYTES + b"]"
    assert Asked(tmp_path)("POST", "/api/start", long).status_code == 413
    assert Asked(tmp_path)("POST", "/api/start", long, Content_Length="2").status_code == 413


def test_every_answer_forbids_scripts_from_elsewhere_and_framing(tmp_path: Path) -> None:
    write_made_up(tmp_path / "a")
    ask = Asked(tmp_path)
    for path in ("/", "/api/runs", "/api/run?id=nowhere", "/static/none.js", "/nothing"):
        headers = ask("GET", path).headers
        assert "script-src 'self'" in headers["content-security-policy"], path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff", path
    assert "<script>" not in ask("GET", "/").text


def test_a_report_which_may_come_from_elsewhere_runs_without_this_services_origin(tmp_path: Path) -> None:
    (write_made_up(tmp_path / "a") / "report.html").write_text("<script>fetch('/api/start')</script>")
    answer = Asked(tmp_path)("GET", "/files/a/report.html")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts allow-downloads; default-src")
    assert "allow-same-origin" not in answer.headers["content-security-policy"]


def test_no_path_leads_out_of_the_folder_and_no_folder_is_listed(tmp_path: Path) -> None:
    root, secret = tmp_path / "runs", tmp_path / "secret"
    write_made_up(root / "a")
    write_made_up(secret)
    (secret / "report.html").write_text("secret")
    os.symlink(secret, root / "link")
    os.symlink(secret / "report.html", root / "a" / "report.html")
    ask = Asked(root)
    for path in ("a/report.html", "link/report.html", "a/../../secret/report.html", "..%2Fsecret/report.html",
                 "%2e%2e/secret/report.html", "/report.html", "a/summary.json", "a/", "", "a"):  # fmt: skip
        answer = ask("GET", f"/files/{path}")
        assert answer.status_code in (400, 404), path
        assert answer.text != "secret"
    for name in ("../secret", "/etc", "a/..", "link", "a\\b", "a//b", "a/./b", "x\0y"):
        for call in ("run?id=", "compare?id=", "log?name=x&id=", "runs?under="):
            answer = ask("GET", f"/api/{call}{name.replace(chr(0), '%00')}")
            assert answer.status_code == 400, (call, name)
    assert [row["id"] for row in ask("GET", "/api/runs").json()["rows"]] == ["a"]


def test_with_a_login_only_a_session_sees_runs_and_a_link_works_once(tmp_path: Path) -> None:
    codes: list[str] = []
    login = Login(codes.append)
    ask = Asked(tmp_path, login)
    assert ask("POST", "/login", {"code": ""}).status_code == 403  # before there is one
    login.renew()
    assert ask("GET", "/").status_code == 200  # holds no secret
    assert ask("GET", "/api/runs").status_code == 401
    assert ask("GET", "/files/a/report.html").status_code == 401
    assert ask("POST", "/api/start", START).status_code == 401
    assert ask("POST", "/login", {"code": "wrong"}).status_code == 403
    assert ask("POST", "/login", {"code": codes[0]}, Origin="http://evil.example").status_code == 403
    entered = ask("POST", "/login", {"code": codes[0]})
    assert entered.status_code == 204
    assert {"HttpOnly", "SameSite=lax"} <= set(entered.headers["set-cookie"].split("; "))
    cookie = entered.headers["set-cookie"].partition(";")[0]
    assert ask("GET", "/api/runs", Cookie=cookie).status_code == 200
    assert ask("GET", "/api/runs", Cookie=f"{cookie}x").status_code == 401
    assert ask("POST", "/login", {"code": codes[0]}).status_code == 403  # used
    assert len(codes) == 2  # the next browser has its own
    assert ask("POST", "/login", {"code": codes[1]}).status_code == 204
