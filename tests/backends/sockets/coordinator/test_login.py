"""Without the token, only the page's own reading is answered: on loopback as it is, elsewhere in a session."""

from __future__ import annotations

from typing import Any

import pytest
from simcluster_backends.sockets.coordinator.api import make_api
from simcluster_backends.sockets.coordinator.guard import CODE_LIMIT_BYTES
from simcluster_backends.sockets.coordinator.service import CoordinatorService

from simcluster.web.login import EXPIRES_S, Login
from tests.backends.sockets.coordinator.test_coordinator import ACTIONS, TOKEN, Calls, begin

HOSTS = {"127.0.0.1", "[::1]", "localhost"}
PAGE = {"Authorization": None, "Sec_Fetch_Site": "same-origin", "Origin": "http://127.0.0.1:52400"}


class LoginCalls(Calls):
    """A service whose page needs a login, the codes that it printed, and a clock that the test moves."""

    def __init__(self, is_tls: bool = False) -> None:
        super().__init__()
        self.codes: list[str] = []
        self.login = Login(self.codes.append, lambda: self.now_s)
        self.app = make_api(self.desk, TOKEN, HOSTS, self.login, is_tls)
        self.login.renew()

    def enter(self, code: str, **headers: Any) -> Any:
        return self("POST", "/login", {"code": code}, **PAGE | headers)


@pytest.fixture
def calls() -> LoginCalls:
    return LoginCalls()


def cookie_of(answer: Any) -> str:
    return str(answer.headers["set-cookie"].partition(";")[0])


def test_on_loopback_the_page_reads_without_a_token_and_other_pages_and_programs_do_not() -> None:
    calls = Calls()
    begin(calls, "a")
    for path in ("/status", "/history", "/history?after_s=3"):
        assert calls("GET", path, **PAGE).status_code == 200
        for site in ("same-site", "cross-site", "none", None):  # none: an address that was typed
            assert calls("GET", path, **PAGE | {"Sec_Fetch_Site": site}).status_code == 401, (path, site)
        assert calls("GET", path, **PAGE, Host="evil.example").status_code == 421
        assert calls("GET", path, **PAGE | {"Authorization": "Bearer wrong"}).status_code == 401
    for path in ("/metrics", "/training/ready", "/openapi.json"):
        assert calls("GET", path, **PAGE).status_code == 401, path
    for path in (*ACTIONS, "/login"):
        assert calls("POST", path, {}, **PAGE).status_code == 401, path


def test_elsewhere_the_page_reads_in_a_session_only_and_changes_nothing_in_it(calls: LoginCalls) -> None:
    assert calls("GET", "/", Authorization=None).status_code == 200
    assert calls("GET", "/status", **PAGE).status_code == 401
    answer = calls.enter(calls.codes[0])
    assert answer.status_code == 204
    session = {"Cookie": cookie_of(answer)}
    for path in ("/status", "/history"):
        assert calls("GET", path, **PAGE, **session).status_code == 200
        assert calls("GET", path, **PAGE | {"Sec_Fetch_Site": None}, **session).status_code == 200  # plain http
        for wrong in ({"Sec_Fetch_Site": "cross-site"}, {"Cookie": session["Cookie"] + "x"}, {"Cookie": "=;\x01"}):
            assert calls("GET", path, **PAGE | session | wrong).status_code == 401, wrong
    for path in ACTIONS:
        assert calls("POST", path, {}, **PAGE, **session).status_code == 401, path
    assert calls("GET", "/metrics", **PAGE, **session).status_code == 401
    assert calls.get("/status")  # a program with the token


@pytest.mark.parametrize("is_tls", [False, True])
def test_the_cookie_of_a_session_is_for_this_site_and_no_script(is_tls: bool) -> None:
    calls = LoginCalls(is_tls)
    words = set(calls.enter(calls.codes[0]).headers["set-cookie"].split("; "))
    assert {"HttpOnly", "SameSite=strict"} <= words
    assert ("Secure" in words) is is_tls


def test_a_code_works_once_from_the_services_own_page_in_a_small_body(calls: LoginCalls) -> None:
    code = calls.codes[0]
    for wrong in ({"Origin": None}, {"Origin": "http://evil.example"}, {"Origin": "http://127.0.0.1:1"},
                  {"Content_Type": "text/plain"}):  # fmt: skip
        assert calls.enter(code, **wrong).status_code == 403, wrong
    assert calls.enter(code, Host="evil.example").status_code == 421
    assert calls("POST", "/login", b" " * (CODE_LIMIT_BYTES + 1), **PAGE).status_code == 413
    assert calls("POST", "/login", b"1" * (CODE_LIMIT_BYTES + 1), Content_Length="2", **PAGE).status_code == 413
    assert calls.enter("wrong").status_code == 403
    assert calls.codes == [code]  # no attempt of these used it up
    assert calls.enter(code).status_code == 204
    assert calls.enter(code).status_code == 403
    assert len(calls.codes) == 2


def test_a_code_expires_and_then_another_is_printed_for_a_browser_that_asks(calls: LoginCalls) -> None:
    calls.now_s += EXPIRES_S - 1
    assert calls("GET", "/status", **PAGE).status_code == 401
    assert len(calls.codes) == 1
    calls.now_s += 1
    assert calls.enter(calls.codes[0]).status_code == 403
    assert len(calls.codes) == 2
    calls.now_s += EXPIRES_S
    assert calls("GET", "/status", **PAGE).status_code == 401
    assert calls("GET", "/status", **PAGE).status_code == 401
    assert len(calls.codes) == 3  # one link per expiry, whatever strangers ask
    assert calls.enter(calls.codes[2]).status_code == 204


def test_a_service_prints_links_off_loopback_or_when_asked_to() -> None:
    # On loopback under another name, a proxy may lead there from elsewhere.
    for endpoint, login, hosts, expected in (
        ("127.0.0.1:0", False, (), 0),
        ("127.0.0.1:0", True, (), 1),
        ("127.0.0.1:0", False, ("localhost",), 0),
        ("127.0.0.1:0", False, ("shelf.local",), 1),
        ("0.0.0.0:0", False, ("shelf.local",), 1),
    ):
        lines: list[str] = []
        service = CoordinatorService(endpoint, TOKEN, Calls().desk, hosts, told=lines.append, login=login)
        service.invite()
        service.close()
        assert len(lines) == expected, endpoint
        for line in lines:
            assert f"{service.page_url}/#/login/" in line
        assert not hosts or service.page_url.startswith(f"http://{hosts[0]}:")
