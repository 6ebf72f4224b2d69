"""`simcluster bench serving`: a table of 80 columns, JSON with the same numbers, a server at a URL, and refusals."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lm.models.test_trained import SIZES, folder_of
from tests.lm.serving.client.scripted import Script, serving, well
from tests.lm.serving.client.test_client import BUSY

ON_SHELF = ("bench", "serving", "smolcluster", "--model", "8b", "--weights", "q4", "--rate", "0.5", "--requests", "8")
SHORT = ("--prompt-tokens", "uniform:10:100", "--output-tokens", "3", "--placement", "alone")


@contextmanager
def server(script: Script) -> Iterator[str]:
    """Serve *script* in a thread; yield its URL."""
    urls: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving(script) as (url, _):
            urls.append(url)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield urls[0]
    finally:
        done.set()
        thread.join()


def test_a_load_on_a_shelf_fits_eighty_columns(command: Any, tmp_path: Path) -> None:
    code, out, err = command(*ON_SHELF, *SHORT, "--goodput", "ttft:100,e2el:100")
    (interval,) = err.splitlines()
    assert code == 0
    assert interval.startswith("times: real rates are 0.51 to 1.18 times these; ")
    assert interval.endswith("; none of this engine; one request each")
    assert max(map(len, out.splitlines())) <= 80
    assert [line.split()[0] for line in out.splitlines()[2:6]] == ["TTFT", "TPOT", "ITL", "E2EL"]
    assert "goodput: " in out
    assert list(tmp_path.iterdir()) == []


def test_json_has_the_numbers_of_the_table_and_a_seed_repeats_them(command: Any) -> None:
    code, out, _ = command(*ON_SHELF, *SHORT, "--json", "--goodput", "ttft:100")
    found = json.loads(out)
    assert code == 0
    assert (found["topology"], found["backend"], found["numerics"], found["placement"]) == (
        "smolcluster",
        "sim",
        "none",
        "alone",
    )
    assert (found["requests"], found["completed"], found["failed"], found["output_tokens"]) == (8, 8, 0, 24)
    assert found["goodput_per_s"] == found["requests_per_s"] == pytest.approx(8 / found["duration_s"])
    assert found["load"]["rate"] == 0.5
    assert [node["node"] for node in found["nodes"]] == ["mini1"]
    assert command(*ON_SHELF, *SHORT, "--json", "--goodput", "ttft:100")[1] == out
    table = command(*ON_SHELF, *SHORT)[1]
    assert f"{1e3 * found['ttft_s']['p99']:.4g} ms" in table


def test_guesses_are_counted_in_table_and_json(command: Any, tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    words = ("bench", "serving", "smolcluster", "--model", str(tmp_path), "--numerics", "real", "--rate", "10",
             "--requests", "3", "--prompt-tokens", "4", "--output-tokens", "14", "--guesses", "3")  # fmt: skip
    found = json.loads(command(*words, "--json")[1])
    assert found["proposed"] >= found["accepted"] > 0
    assert f"guesses: {found['accepted']} of {found['proposed']} were right" in command(*words)[1]


def test_a_trace_gives_arrivals_and_lengths(command: Any, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("Timestamp,Request tokens,Response tokens\n5,30,2\n65,20,3\n")
    words = (
        "bench",
        "serving",
        "smolcluster",
        "--model",
        "8b",
        "--weights",
        "q4",
        "--placement",
        "alone",
        "--trace",
        "trace.csv",
    )
    found = json.loads(command(*words, "--json")[1])
    assert (found["completed"], found["prompt_tokens"], found["output_tokens"]) == (2, 50, 5)
    assert found["duration_s"] > 60
    code, _, err = command(*words, "--burstiness", "2")
    assert (code, "--burstiness: found 2, expected none with --trace" in err) == (2, True)


def test_the_answers_of_a_run_are_a_trace_that_gives_the_run(command: Any, tmp_path: Path) -> None:
    words = (
        "bench",
        "serving",
        "smolcluster",
        "--model",
        "8b",
        "--weights",
        "q4",
        "--placement",
        "alone",
        "--requests",
        "6",
    )
    drawn = ("--rate", "0.5", "--prompt-tokens", "uniform:10:100", "--output-tokens", "geometric:4")
    first = json.loads(command(*words, *drawn, "--out", "run.csv", "--json")[1])
    again = json.loads(command(*words, "--trace", "run.csv", "--out", "again.csv", "--json")[1])
    for name in ("duration_s", "mean_in_system"):
        assert again[name] == pytest.approx(first[name], rel=1e-9)
    for name in ("ttft_s", "tpot_s", "itl_s", "e2el_s"):
        assert again[name] == pytest.approx(first[name], rel=1e-9)
    rows, repeated = ((tmp_path / name).read_text().splitlines() for name in ("run.csv", "again.csv"))
    assert [row.split(",")[2:6] for row in rows] == [row.split(",")[2:6] for row in repeated]
    code, _, err = command(*words, *drawn, "--out", "none/run.csv")
    assert (code, "none" in err) == (2, True)


def test_a_server_is_measured_by_its_url(command: Any) -> None:
    words = ("--model", "m", "--rate", "inf", "--requests", "5", "--output-tokens", "3")
    with server(well) as url:
        code, out, _ = command("bench", "serving", "--url", url, *words, "--json")
        found = json.loads(out)
    assert code == 0
    assert (found["url"], found["model"]) == (f"{url}/v1/chat/completions", "m")
    assert (found["completed"], found["output_tokens"], found["prompt_tokens"]) == (5, 15, 200)
    assert found["load"]["rate"] == "inf"
    assert found["late_s"] >= 0


def test_a_server_that_answers_no_request_is_a_failed_run(command: Any) -> None:
    words = ("--model", "m", "--rate", "inf", "--requests", "2")
    with server(BUSY) as url:
        code, out, err = command("bench", "serving", "--url", url, *words)
    assert code == 1
    assert "2 failed (2 http 429)" in out
    assert "http 429: slow down" in out
    assert "no request was answered: http 429" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["smolcluster", "--rate", "1"], "--model: found nothing"),
        (["--model", "8b", "--rate", "1"], "neither a topology nor --url"),
        (["smolcluster", "--url", "http://h", "--model", "m", "--rate", "1"], "smolcluster and --url"),
        (["smolcluster", "--model", "8b"], "--rate: found nothing"),
        (["smolclutser", "--model", "8b", "--rate", "1"], "did you mean 'smolcluster'?"),
        (
            ["smolcluster", "--model", "8b", "--rate", "1", "--timeout", "5"],
            "--timeout: found 5.0, expected it with --url",
        ),
        (["--url", "http://h", "--model", "m", "--rate", "1", "--placement", "alone"], "a topology instead of --url"),
        (
            ["--url", "http://h", "--model", "m", "--rate", "1", "--timeout", "0"],
            "--timeout: found 0, expected seconds",
        ),
        (["--url", "h:1", "--model", "m", "--rate", "1"], "expected http(s)://HOST:PORT"),
        (["smolcluster", "--model", "8b", "--rate", "1", "--goodput", "tfft:1"], "did you mean 'ttft'?"),
        (["smolcluster", "--model", "8b", "--rate", "1", "--trace", "no.csv"], "--trace: found no.csv: No such file"),
    ],
)
def test_a_wrong_request_is_refused(words: list[str], said: str, command: Any, tmp_path: Path) -> None:
    code, out, err = command("bench", "serving", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert list(tmp_path.iterdir()) == []
