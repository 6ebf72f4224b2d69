"""YAML with places: values by YAML 1.2, every error with its place, and no file that fills the memory."""

from __future__ import annotations

import contextlib
import copy
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simcluster.documents import yaml as yaml_lines
from simcluster.documents import yaml_build
from simcluster.documents.yaml_build import KeyPath, resolve
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.topology import load


def refused(text: str) -> str:
    with pytest.raises(UsageError) as error:
        yaml_lines.loads(text, "f.yaml")
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e12", 1e12),
        ("2.0e12", 2e12),
        ("1e-3", 1e-3),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("12", 12),
        ("-012", -12),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("on", "on"),
        ("yes", "yes"),
        ("off", "off"),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ("1_000", "1_000"),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("1 Gbps", "1 Gbps"),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(text: str, value: object) -> None:
    found = yaml_lines.loads(f"key: {text}\n").data["key"]
    assert (type(found), found) == (type(value), value)


def test_not_a_number_is_a_float() -> None:
    assert math.isnan(resolve(".nan"))


def test_keys_are_text_as_written() -> None:
    assert yaml_lines.loads("{1: a, 01: b, null: c, on: d}").data == {
        "1": "a",
        "01": "b",
        "null": "c",
        "on": "d",
    }


TEXT = """\
name: x
nodes:
  a: {device: pi, tags: [one, two]}
links:
  - between: [a, b]
    bandwidth: 1
"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("name",), (1, 7)),
        (("nodes", "a", "device"), (3, 15)),
        (("nodes", "a", "tags", 1), (3, 31)),
        (("links", 0), (5, 5)),
        (("links", 0, "bandwidth"), (6, 16)),
        (("nodes", "a", "missing", "deeper"), (3, 3)),  # the nearest key that is there
        (("nothing",), (1, 1)),
    ],
)
def test_every_value_knows_its_line_and_column(path: KeyPath, place: tuple[int, int]) -> None:
    problem = yaml_lines.loads(TEXT, "f.yaml").problem(path, expected="other")
    assert (problem.file, problem.line, problem.column) == ("f.yaml", *place)


def test_a_problem_reads_as_file_line_column_key_found_expected() -> None:
    document = yaml_lines.loads(TEXT, "f.yaml")
    problem = document.problem(("links", 0, "bandwidth"), expected="a unit")
    assert str(problem) == "f.yaml:6:16: links[0].bandwidth: found 1, expected a unit"
    assert document.problem(("links", 0, "bandwidth"), expected="", at_key=True).column == 5


def test_a_key_that_stands_twice_is_an_error_with_both_lines() -> None:
    assert refused("a: 1\nb: 2\na: {c: 3}\n") == (
        "f.yaml:3:1: a: found a duplicate key, expected one (first on line 1)"
    )


def test_all_duplicates_are_reported_at_once_and_the_first_value_is_kept() -> None:
    document = yaml_lines.loads("{a: 1, a: {x: 1, x: 2}, b: {c: 1, c: 2}}", keep_duplicates=True)
    assert document.data == {"a": 1, "b": {"c": 1}}
    # The second `a` is dropped, but its own two equal keys are a mistake as well.
    assert sorted(duplicate.path for duplicate in document.duplicates) == [("a",), ("a", "x"), ("b", "c")]
    assert document.get(("a", "x")) is yaml_lines.MISSING


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: [1", "f.yaml:1:4: YAML syntax"),
        ("a: b: c", "f.yaml:1:5: YAML syntax"),
        ("a:\n\tb: 1", "f.yaml:2:1: YAML syntax"),
        ("a: 'open", "f.yaml:1"),
        ("a: \x00", "f.yaml: YAML syntax"),
        ("a: \ud800", "f.yaml: YAML syntax"),
        ("a: 1\n---\nb: 2", "f.yaml:2:1: document: found a second document"),
        ("? [1]\n: 2", "f.yaml:1:3: document: found a key that is not text"),
        ("a: *b", "f.yaml:1:4: document: found the alias *b"),
        ("x: &a [*a]", "f.yaml:1:8: x: found the alias *a"),
        ("a: !!python/object:os.system x", "f.yaml:1:4: document: found the tag"),
        ("a: !!timestamp 2020-01-01", "f.yaml:1:4: document: found the tag"),
        ("a: !x {b: 1}", "f.yaml:1:4: document: found the tag"),
        ("a: " + "9" * 5000, "f.yaml:1:4: document: found a number of 5000 characters"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_place(text: str, place: str) -> None:
    assert refused(text).startswith(place)


def test_an_alias_of_a_number_is_that_number() -> None:
    assert yaml_lines.loads("a: &x 1.5\nb: *x\nc: [&y true, *y]\n").data == {"a": 1.5, "b": 1.5, "c": [True, True]}


def test_an_alias_is_a_copy() -> None:
    document = yaml_lines.loads("a: &x {k: [1]}\nb: *x\n")
    document.override(("b", "k", 0), 2, "--set b.k")
    assert document.data == {"a": {"k": [1]}, "b": {"k": [2]}}


def test_an_alias_bomb_is_refused_before_it_is_unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ten lines of ten aliases each would be 10^10 values.
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    copied = 0

    def counted(value: Any) -> Any:
        nonlocal copied
        copied += yaml_build._extent(value)[0]
        return copy.deepcopy(value)

    monkeypatch.setattr(yaml_build, "copy", SimpleNamespace(deepcopy=counted))
    assert "aliases that repeat too much, expected at most 100000 values" in refused("\n".join(lines))
    assert 50_000 < copied <= 100_000


def test_the_content_of_another_kind_of_file_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "shadow"
    path.write_text("".join(f"user{i}:$6$secret{i}:19000:0:99999:7:::\n" for i in range(30)))
    for read in (read_experiment, load):
        with pytest.raises(UsageError) as error:
            read(str(path))
        assert "found 30 other keys, expected a mapping with name, " in str(error.value)
        assert "secret" not in str(error.value)
    key = "k" * 5000
    with pytest.raises(UsageError) as error:
        load({"name": "a", key: 1})
    assert len(str(error.value)) < 2000


def test_deep_nesting_is_refused_also_by_way_of_aliases() -> None:
    assert "deeper nesting" in refused("[" * 100_000)
    deep = "[" * 40 + "]" * 40
    assert "deeper nesting" in refused(f"a: &a {deep}\nb: {'[' * 40}*a{']' * 40}")


def test_more_values_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster.documents.yaml_build.MAX_VALUES", 10)
    assert "more values, expected at most 10" in refused("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]")
    assert len(yaml_lines.loads("[1, 2, 3, 4, 5, 6, 7, 8, 9]").data) == 9


def test_files_that_cannot_be_read_are_usage_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="No such file"):
        yaml_lines.load(tmp_path / "missing.yaml")
    with pytest.raises(UsageError, match="found a folder, expected the path of a file"):
        yaml_lines.load(tmp_path)
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: 1\nb: \xe4\n")
    with pytest.raises(UsageError, match=r"latin.yaml:2: text: found bytes that are not UTF-8"):
        yaml_lines.load(path)
    monkeypatch.setattr(yaml_lines, "MAX_BYTES", 3)
    with pytest.raises(UsageError, match="at most 3 bytes"):
        yaml_lines.load(path)


def test_an_empty_file_is_null() -> None:
    assert yaml_lines.loads("").data is None
    assert yaml_lines.loads("# only a comment\n").problem(("a",), expected="b").line is None


def test_an_override_makes_mappings_on_the_way_and_is_named_in_problems() -> None:
    document = yaml_lines.loads("a: {b: 1}\n", "f.yaml")
    document.override(("a", "c", "d"), "x", "--set a.c.d=x")
    assert document.data == {"a": {"b": 1, "c": {"d": "x"}}}
    problem = document.problem(("a", "c", "d"), expected="a number")
    assert str(problem) == "a.c.d (set by overrides a.c.d=x): found 'x', expected a number"
    assert document.problem(("a", "b"), expected="").line == 1


def test_an_override_inside_a_scalar_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a\.b\.c, but a\.b is 1"):
        yaml_lines.loads("a: {b: 1}").override(("a", "b", "c"), 2, "--set")


def test_a_value_of_the_command_line_means_what_it_means_in_a_file() -> None:
    assert [yaml_lines.parse_value(text) for text in ("4", "1e-3", "[a, 2]", "10 Mbps", "on")] == [
        4,
        1e-3,
        ["a", 2],
        "10 Mbps",
        "on",
    ]


# What YAML 1.2 reads as a number; PyYAML leaves the words 0E0 and 0o7 without quotes, since in YAML 1.1 they are none.
NUMBER = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|0o[0-7]+|0x[0-9a-fA-F]+")
words = st.text().filter(lambda text: not NUMBER.fullmatch(text))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)


@given(plain)
def test_what_pyyaml_writes_is_read_back_equal(value: Any) -> None:
    # PyYAML writes for YAML 1.1, which quotes more than 1.2 needs; 1e16 it writes as 1.0e+16.
    assert yaml_lines.loads(yaml.safe_dump(value)).data == value


@given(st.text())
def test_any_text_is_data_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        yaml_lines.loads(text, "f.yaml")
