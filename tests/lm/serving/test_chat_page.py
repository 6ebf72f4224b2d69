"""The chat page in a real browser, in front of a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simcluster.lm.serving.desk.request_broker import RequestBroker
from simcluster.web.login import Login
from tests.lab.ui.test_pages import check_looks, press
from tests.lm.serving.scripted import END, NODES, Engine, Script, engine, server
from tests.lm.serving.test_api import AFTER
from tests.support.browser import needs_browser
from tests.support.devtools import Page, browser

pytestmark = [needs_browser, pytest.mark.browser]

EVIL = """<script>window.stolen = 1</script><img src=x onerror="window.stolen = 2">
[a](javascript:window.stolen=3) [b](http://127.0.0.1/x)"""
MARKDOWN = """# Paris

**The capital** of *France* has:

1. one
   - inner
2. `two`

```python
a = "<b>"
```"""


def script(prompt: str) -> Script:
    last = prompt.strip().splitlines()[-1]
    if "evil" in last:
        return Script(EVIL)
    if "step" in last:
        return Script("one two three", stepwise=True)
    if "fail" in last:
        return Script("half", "error", "rank 1 (mini2) is lost: no heartbeat for 5 s", stepwise=True)
    return Script(MARKDOWN)


@pytest.fixture
def made() -> Iterator[Engine]:
    with engine(script) as found:
        yield found


@pytest.fixture
def tab(made: Engine, tmp_path: Path) -> Iterator[Page]:
    with server(made.front) as running, browser(tmp_path / "profile") as page:
        page.look(1280, dark=False)
        page.open(running.url + "/")
        page.wait_for("!document.getElementById('model').hidden")
        yield page
        assert page.complaints == []
        assert [url for url in page.urls if not url.startswith((running.url, "data:,", "about:"))] == []


def say(tab: Page, text: str) -> None:
    """Type *text* and press Enter."""
    tab.ask("document.getElementById('text').focus()")
    tab.call("Input.insertText", text=text)
    press(tab, "Enter", 13, "\r")


def said(tab: Page) -> list[str]:
    found: list[str] = tab.ask("[...document.querySelectorAll('#turns .said')].map((one) => one.textContent)")
    return found


def click(tab: Page, selector: str) -> None:
    tab.ask(f"document.querySelector({selector!r}).click()")


ANSWERED = "document.querySelectorAll('[data-does=again]').length"


@pytest.mark.slow
def test_markdown_becomes_elements_and_a_script_of_the_model_stays_text(tab: Page) -> None:
    say(tab, "hello")
    tab.wait_for(ANSWERED)
    found = tab.ask("['h3', 'strong', 'em', 'ol > li', 'ol ul > li', 'code', 'pre code'].map("
                    "(one) => document.querySelectorAll(`.assistant .said ${one}`).length)")  # fmt: skip
    assert found == [1, 1, 1, 2 + 0, 1, 2, 1]
    assert tab.ask("document.querySelector('pre code').textContent") == 'a = "<b>"'
    say(tab, "evil")
    tab.wait_for("document.querySelectorAll('.assistant').length === 2 && " + ANSWERED)
    assert "<script>window.stolen = 1</script>" in said(tab)[-1]
    assert tab.ask("document.querySelectorAll('#turns script, #turns img').length") == 0
    links = tab.ask("[...document.querySelectorAll('#turns a')].map((one) => [one.href, one.rel])")
    assert links == [["http://127.0.0.1/x", "noopener noreferrer"]]
    assert tab.ask("window.stolen ?? null") is None
    check_looks(tab)
    places = (
        "['#history-side', '#shelf-side', 'main'].map((one) => document.querySelector(one).getBoundingClientRect())"
    )
    for is_open in ("false", "true"):  # in the narrow window, the sides are above the conversation, not over it
        tab.ask(f"document.getElementById('shelf-side').open = {is_open}")
        assert tab.ask(f"(([a, b, c]) => a.bottom <= c.top && b.bottom <= c.top && c.height > 200)({places})")


@pytest.mark.slow
def test_an_answer_streams_is_stopped_and_made_again(tab: Page, made: Engine) -> None:
    say(tab, "step")
    made.let(4)
    tab.wait_for("document.querySelector('.writing .said')?.textContent === 'one '")
    assert tab.ask("document.getElementById('send').textContent") == "Stop"
    click(tab, "#send")
    made.wait_for(lambda: made.cancelled)
    tab.wait_for(ANSWERED)
    assert said(tab) == ["step", "one "]
    assert tab.ask("document.querySelector('.numbers').textContent") == "stopped"
    made.let(20)  # 13 characters and the end
    click(tab, "[data-does=again]")
    tab.wait_for("document.querySelectorAll('.said')[1]?.textContent === 'one two three' && " + ANSWERED)
    assert said(tab) == ["step", "one two three"]
    numbers = tab.ask("document.querySelector('.numbers').textContent")
    assert "tokens/s (predicted 20)" in numbers
    assert "(predicted 500 ms) · 14 tokens" in numbers
    assert len(made.seen) == 2
    assert made.seen[0].prompt == made.seen[1].prompt  # the stopped answer is not part of it


@pytest.mark.slow
def test_a_failure_is_readable_and_conversations_stay_in_the_browser(tab: Page, made: Engine) -> None:
    say(tab, "fail")
    made.let(2)
    tab.wait_for("document.querySelector('.writing .said')?.textContent === 'ha'")
    made.let(2)
    tab.wait_for(ANSWERED)
    assert tab.ask("document.querySelector('#turns .failure').textContent") == (
        "rank 1 (mini2) is lost: no heartbeat for 5 s"
    )
    assert tab.ask("document.querySelector('[data-does=again]').textContent") == "Try again"
    check_looks(tab)
    tab.look(1280, dark=False)
    click(tab, "#new")
    assert said(tab) == []
    tab.open(tab.ask("location.href"))
    tab.wait_for("document.querySelectorAll('#conversations .open').length === 1")
    click(tab, "#conversations .open")
    assert said(tab) == ["fail", "half"]
    click(tab, "#conversations .forget")
    assert tab.ask("document.querySelectorAll('#conversations li').length") == 0


@pytest.mark.slow
def test_the_settings_reach_the_engine(tab: Page, made: Engine) -> None:
    for name, value in (("temperature", "0.25"), ("top_p", "0.5"), ("top_k", "7"), ("max_tokens", "3"), ("seed", "11")):
        tab.ask(f"document.getElementById('{name}').value = '{value}'")
    tab.ask("document.getElementById('system').value = 'Be brief.'")
    say(tab, "hello")
    tab.wait_for(ANSWERED)
    (request,) = made.seen
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.25, 0.5, 7, 11)
    assert request.max_tokens == 3
    assert bytes(request.prompt) == b"system: Be brief.\nuser: hello\n"
    assert END in request.ends


@pytest.mark.slow
def test_a_pointer_over_a_token_shows_its_probability_if_they_are_asked_for(tab: Page, made: Engine) -> None:
    click(tab, "#likeliest")
    say(tab, "step")
    made.let(20)
    tab.wait_for(ANSWERED)
    assert said(tab) == ["step", "one two three"]
    titles = tab.ask("[...document.querySelectorAll('.said .token')].map((one) => one.title.split('\\n'))")
    # Half of it for the token itself, an eighth for each of the next ones, the bytes 0 to 3.
    assert [one[:2] for one in titles] == [["50.0 %", f'"{letter}" 50.0 %'] for letter in "one two three"]
    assert {(len(one), one[-1]) for one in titles} == {(6, '"\\u0003" 12.5 %')}
    check_looks(tab)
    tab.look(1280, dark=False)
    click(tab, "#likeliest")
    say(tab, "hello")
    tab.wait_for("document.querySelectorAll('.assistant').length === 2 && " + ANSWERED)
    assert [request.logprobs for request in made.seen] == [5, -1]
    assert tab.ask("document.querySelectorAll('.assistant:last-child .token').length") == 0


@pytest.mark.slow
def test_the_shelf_shows_layers_memory_and_the_load_of_every_node(tab: Page, made: Engine) -> None:
    text = tab.ask("document.getElementById('shelf').textContent")
    assert [name in text for name in NODES] == [True] * 3
    assert "layers 10 to 19" in text
    assert "45 MB weights" in text
    say(tab, "step")
    made.let(4)
    tab.wait_for("document.querySelectorAll('#shelf .node.lit').length === 3")
    tab.wait_for("document.querySelector('#loads dd').textContent === '1'")
    made.let(20)
    tab.wait_for(ANSWERED)
    measured = tab.ask("document.getElementById('measured').textContent")
    assert "first token500 ms" in measured
    tab.wait_for("document.querySelector('#loads dd').textContent === '0'")


@pytest.mark.slow
def test_the_page_explains_its_words_and_says_for_which_device_it_predicts(tab: Page) -> None:
    words = tab.ask("[...document.querySelectorAll('#loads div')].map((one) => one.innerText.split(/\\n+/))")
    assert [one[0] for one in words] == ["running", "waiting", "cache", "prefilled"]
    assert all(len(one) == 3 for one in words)
    assert words[3][2] == "tokens of prompts read so far"
    assert tab.ask("document.getElementById('device').textContent").startswith("Predictions are for mac-mini-m4; ")


TWO_MODELS = """{
const real = window.fetch;
window.fetch = (path, how) => path !== "/v1/models" ? real(path, how)
  : Promise.resolve(new Response(JSON.stringify({ data: [{ id: "tiny" }, { id: "other" }] })));
}"""


@pytest.mark.slow
def test_one_of_several_models_can_be_chosen(tab: Page, made: Engine) -> None:
    options = "[...document.querySelectorAll('#model option')].map((one) => one.textContent)"
    assert tab.ask(options) == ["tiny"]
    assert tab.ask("document.getElementById('model').disabled")
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=TWO_MODELS)
    tab.open(tab.ask("location.href"))
    tab.wait_for("!document.getElementById('model').hidden && !document.getElementById('model').disabled")
    assert tab.ask(options) == ["tiny", "other"]
    tab.ask("document.getElementById('model').value = 'other'")
    tab.ask("document.getElementById('model').dispatchEvent(new Event('change'))")
    assert tab.ask("document.getElementById('greeting').textContent") == "Ask other"
    say(tab, "hello")
    tab.wait_for("document.querySelectorAll('#turns .failure').length")
    assert "no model 'other'" in tab.ask("document.querySelector('#turns .failure').textContent")
    tab.complaints.clear()  # of the status 404


@pytest.mark.slow
def test_after_a_loss_the_open_page_shows_the_placement_in_force(tab: Page, made: Engine) -> None:
    tab.wait_for("document.querySelectorAll('#shelf .node').length === 3")
    made.front.open(made.loop.call_soon_threadsafe, AFTER)
    tab.wait_for("document.querySelectorAll('#shelf .node.lost').length === 1")
    text = tab.ask("document.getElementById('shelf').textContent")
    assert ["layers 0 to 9" in text, "layers 10 to 29" in text, "no heartbeat for 5 s" in text] == [True] * 3
    assert tab.ask("document.querySelectorAll('#shelf .weights').length") == 2
    assert "2 nodes" in tab.ask("document.getElementById('shelf-words').textContent")
    check_looks(tab)
    say(tab, "hello")
    tab.wait_for(ANSWERED)
    assert "first token750 ms" in tab.ask("document.getElementById('measured').textContent")


@pytest.mark.slow
def test_with_a_token_the_page_asks_for_the_link_and_works_with_it(made: Engine, tmp_path: Path) -> None:
    codes: list[str] = []
    login = Login(codes.append)
    login.renew()
    with server(made.front, "secret", login) as running, browser(tmp_path / "profile") as tab:
        tab.open(running.url + "/")
        tab.wait_for("!document.getElementById('ask-login').hidden")
        assert "Open the link" in tab.ask("document.getElementById('ask-login').textContent")
        tab.ask(f"location.hash = '#/login/{codes[0]}'")
        tab.wait_for("!document.getElementById('model').hidden && document.getElementById('ask-login').hidden")
        say(tab, "hello")
        tab.wait_for(ANSWERED)
        assert "The capital" in said(tab)[-1]


@pytest.mark.slow
def test_while_the_model_is_loaded_the_page_says_so_and_asks_again(tmp_path: Path) -> None:
    front = RequestBroker()
    with server(front) as running, browser(tmp_path / "profile") as tab:
        tab.open(running.url + "/")
        tab.wait_for("document.getElementById('about').textContent === 'the model is being loaded'")
        say(tab, "hello")
        tab.wait_for("document.querySelectorAll('#turns .failure').length")
        assert "being loaded" in tab.ask("document.querySelector('#turns .failure').textContent")
        front.open()
        tab.wait_for("document.getElementById('about').textContent.startsWith('simulated cluster')")
