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
    assert "found no column 'Timestamp'" in refused(tmp_path, "")
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
