"""Traces: BurstGPT's columns, in any order; every fault with its line; sizes bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcluster.errors import MOST_ALIKE, MOST_PROBLEMS, UsageError
from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.arrivals import OfferedRequest
from simcluster.lm.load.trace import MOST_LINE, read_trace, written_trace

HEAD = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(UsageError) as error:
        read_trace(written(folder, text))
    return str(error.value).replace(str(folder), "")


def test_a_trace_begins_at_its_first_answered_request(tmp_path: Path) -> None:
    rows = "4,ChatGPT,9,0,9,API log\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,API log\n"
    found = read_trace(written(tmp_path, HEAD + rows))
    assert found.requests == [OfferedRequest(0.0, 472, 18), OfferedRequest(40.0, 1087, 230)]
    assert found.without_answer == 1


def test_what_is_written_gives_the_same_load_and_has_the_latencies(tmp_path: Path) -> None:
    answers = [
        AnsweredRequest(1 / 3, (0.5, 0.7), 0.7, 9, 2),
        AnsweredRequest(0.4, (), 2.0, 5, 0, "timeout"),
        AnsweredRequest(1.1, (1.6,), 1.6, 8, 1),
    ]
    text = written_trace(answers, "m, n")
    assert text.splitlines()[2:] == [
        '0.4,"m, n",5,0,5,API log,,,,timeout',
        f'1.1,"m, n",8,1,9,API log,{1.6 - 1.1!r},,{1.6 - 1.1!r},',
    ]
    found = read_trace(written(tmp_path, text))
    assert found.requests == [OfferedRequest(0.0, 9, 2), OfferedRequest(1.1 - 1 / 3, 8, 1)]
    assert found.without_answer == 1


def test_columns_may_come_in_any_order_with_others_and_with_gaps(tmp_path: Path) -> None:
    text = '\ufeffSession ID,Response tokens,Timestamp, Request tokens\n"a, b",2,0.5,1\n\n,4,1.5,3\n'
    assert read_trace(written(tmp_path, text)).requests == [OfferedRequest(0.0, 1, 2), OfferedRequest(1.0, 3, 4)]


def test_only_the_rows_asked_for_are_read(tmp_path: Path) -> None:
    text = HEAD + "1,M,2,3,5,L\n2,M,2,3,5,L\nthe third row is never read\n"
    assert len(read_trace(written(tmp_path, text), 2).requests) == 2


def test_all_faults_are_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = HEAD + "soon,M,2,3,5,L\n5,M,0,3,3,L\n6,M,2,1.5,3,L\n4,M,2,3,6,L\n3,M,2,3,5,L\n7\n"
    assert refused(tmp_path, text).splitlines() == [
        "/trace.csv:2: Timestamp: found 'soon', expected a number of at least 0",
        "/trace.csv:3: Request tokens: found 0, expected a whole number from 1 to 1,000,000",
        "/trace.csv:4: Response tokens: found 1.5, expected a whole number from 0 to 1,000,000",
        "/trace.csv:5: Total tokens: found 6, expected 5, the sum of request and response",
        "/trace.csv:6: Timestamp: found 3 after 4, expected times in order",
        "/trace.csv:7: Request tokens: found nothing, expected a number of at least 0 and at most 1,000,000",
        "/trace.csv:7: Response tokens: found nothing, expected a number of at least 0 and at most 1,000,000",
    ]


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "1e400"])
def test_a_time_that_is_no_number_is_refused(number: str, tmp_path: Path) -> None:
    assert f":2: Timestamp: found '{number}'" in refused(tmp_path, f"{HEAD}{number},M,2,3,5,L\n")


def test_a_file_without_the_columns_is_refused_with_a_hint(tmp_path: Path) -> None:
    said = refused(tmp_path, "Timestamp,Request token,Response tokens\n1,2,3\n")
    assert "trace.csv:1: header: found no column 'Request tokens'" in said
    assert "did you mean 'Request token'?" in said
    assert "header: found '', expected the columns of a trace: Timestamp, Request tokens" in refused(tmp_path, "")
    assert "found several columns 'Timestamp'" in refused(tmp_path, HEAD.replace("Model", "Timestamp"))


def test_a_trace_of_failures_alone_is_refused(tmp_path: Path) -> None:
    assert "rows: found 1 without an answer and no other" in refused(tmp_path, HEAD + "1,M,2,0,2,L\n")


def test_a_long_line_is_refused_before_it_is_read_to_its_end(tmp_path: Path) -> None:
    said = refused(tmp_path, HEAD + "1" * 10 * MOST_LINE)
    assert f":2: line: found {MOST_LINE + 1:,} characters or more" in said


def test_reading_stops_at_many_faults(tmp_path: Path) -> None:
    *_, last = refused(tmp_path, HEAD + "x,M,2,3,5,L\n" * 3 * MOST_PROBLEMS).splitlines()
    assert last == f"and {MOST_PROBLEMS - MOST_ALIKE} more like it"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.csv: No such file"):
        read_trace(tmp_path / "no.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="no UTF-8 text"):
        read_trace(tmp_path / "binary.csv")


AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,0\n2023-11-16 18:15:51.2225670,879,55\n"
)
MOONCAKE = (
    '{"timestamp": 27000, "input_length": 655, "output_length": 52, "hash_ids": [46, 47]}\n'
    '{"timestamp": 28053, "input_length": 672, "output_length": 26, "hash_ids": [46]}\n'
)


@pytest.mark.parametrize(
    ("text", "requests", "words"),
    [
        # 51.2225670 - 46.6805900 s, with all seven digits
        (AZURE, [(0.0, 374, 44), (4.541977, 879, 55)],
         "Azure's trace: 2 requests, ContextTokens as prompt tokens, GeneratedTokens as output tokens, TIMESTAMP as "
         "arrivals, 1 without an answer left out"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2,3\n"
         "2024-05-10T02:00:01.5+02:00,4,5\n", [(0.0, 2, 3), (1.49007, 4, 5)], "Azure's trace: 2 requests"),
        (MOONCAKE, [(0.0, 655, 52), (1.053, 672, 26)], "Mooncake's trace: 2 requests, input_length as prompt tokens"),
        ("timestamp,input_length,output_length\n0,1,2\n500,3,4\n", [(0.0, 1, 2), (0.5, 3, 4)], "arrivals in ms"),
        ('[{"arrival": 1.5, "prompt_len": 3, "output_len": 4},\n {"arrival": 2, "prompt_len": 5, "output_len": 6}]',
         [(0.0, 3, 4), (0.5, 5, 6)], "a trace with vLLM's lengths: 2 requests, prompt_len as prompt tokens"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n1,2,3\n", [(0.0, 2, 3)], "Vidur's trace: 1 request"),
    ],
)  # fmt: skip
def test_published_traces_are_known_by_their_columns(
    text: str, requests: list[tuple[float, int, int]], words: str, tmp_path: Path
) -> None:
    found = read_trace(written(tmp_path, text))
    assert found.requests == [OfferedRequest(*one) for one in requests]
    assert words in found.words


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (AZURE.replace("18:15:51", "18:15:40"), ":4: TIMESTAMP: found 2023-11-16 18:15:40.2225670 after 2023-11-16"),
        (AZURE.replace("2023-11-16 18:15:51", "yesterday"), ":4: TIMESTAMP: found 'yesterday.2225670', expected a"),
        (AZURE.replace("ContextTokens", "Context"), "no column 'ContextTokens', expected the columns TIMESTAMP"),
        (MOONCAKE + "{broken\n", ":3: line: found '{broken\\n', expected a JSON object, a request"),
        (MOONCAKE.replace("672", "true"), ":2: input_length: found 'True', expected a number of at least 0"),
        (MOONCAKE.replace("672", "Infinity"), ":2: input_length: found 'inf'"),
        ("[" * 10**5, "found no JSON"),
        ('[{"arrival": 0, "prompt_len": -1, "output_len": 1}]', "trace.csv: [0].prompt_len: found '-1'"),
        ('[{"id": "a", "conversations": []}]', "found ShareGPT's conversations, without times and counts of tokens"),
        ("a,b\n1,2\n", "found 'a, b', expected the columns of a trace: Timestamp, Request tokens, Response tokens"),
    ],
)  # fmt: skip
def test_a_wrong_published_trace_is_refused_with_its_line(text: str, problem: str, tmp_path: Path) -> None:
    said = refused(tmp_path, text)
    assert len(said.splitlines()) == 1
    assert problem in said


def test_broken_lines_are_told_ten_times_and_bound_the_reading(tmp_path: Path) -> None:
    lines = refused(tmp_path, MOONCAKE + "{broken\n" * 3 * MOST_PROBLEMS).splitlines()
    assert lines[0].startswith("/trace.csv:3: line: found '{broken")
    assert lines[-1] == f"and {MOST_PROBLEMS - MOST_ALIKE} more like it"
