"""The line of a node from two readings: its arithmetic, its words, and what it leaves out."""

from __future__ import annotations

import json
import math

import pytest
from simcluster_backends.common.log_line import MACHINE, CounterReading, fields_of, text_of

MACHINE_NOW = {
    "rss_bytes": 262_144_000.0, "cpu_percent": 97.4, "machine_cpu_percent": 60.0, "machine_memory_percent": 40.6,
    "temperature_C": 55.0,
}  # fmt: skip
BEFORE = CounterReading(at_s=10.0, step=100, steps=500, loss=0.5, samples=3200, seconds=(4.0, 1.0, 5.0))
NOW = CounterReading(15.0, 120, 500, 0.25, 3840, None, (7.0, 1.5, 6.0), ["recv(source=0, tag='weights')"], MACHINE_NOW)


def test_rates_and_shares_are_of_the_time_between_the_readings() -> None:
    fields = fields_of(BEFORE, NOW)
    assert (fields["step"], fields["steps"], fields["loss"]) == (120, 500, 0.25)
    assert fields["steps_per_s"] == 4.0  # 20 steps in 5 s
    assert fields["samples_per_s"] == 128.0  # 640 in 5 s
    # 3, 0.5 and 1 of 5 s
    assert (fields["computing"], fields["sending"], fields["waiting"]) == (0.6, 0.1, 0.2)
    assert {key: fields[key] for key in MACHINE} == MACHINE_NOW
    assert fields["ended"] is False
    assert "waits_for" not in fields
    assert "tokens_per_s" not in fields
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields


def test_the_text_says_the_same() -> None:
    assert text_of("pi4", fields_of(BEFORE, NOW)) == (
        "pi4: step 120 of 500, loss 0.25, 4 steps/s, 128 samples/s, computing 60 %, sending 10 %, waiting 20 %, "
        "memory 262 MB, CPU 97 %, machine CPU 60 % memory 41 %, 55 °C"
    )


def test_a_language_model_is_counted_in_tokens() -> None:
    fields = fields_of(BEFORE, CounterReading(15.0, 120, samples=3840, tokens=64, seconds=(7.0, 1.5, 6.0)))
    assert fields["samples_per_s"] == 128.0
    assert fields["tokens_per_s"] == 8192.0  # 128 windows of 64
    assert "8,192 tokens/s" in text_of("a", fields)
    assert "samples/s" not in text_of("a", fields)


def test_a_node_without_a_step_says_what_it_waits_for_and_the_last_line_does_not() -> None:
    stuck = CounterReading(20.0, 120, seconds=(7.0, 1.5, 11.0), waits=[f"recv({i})" for i in range(5)])
    fields = fields_of(CounterReading(15.0, 120, seconds=(7.0, 1.5, 6.0)), stuck)
    assert fields["waits_for"] == ["recv(0)", "recv(1)", "recv(2)"]
    assert fields["waiting"] == 1.0
    assert text_of("a", fields).endswith("no step, waits for recv(0); recv(1); recv(2)")
    quiet = fields_of(CounterReading(15.0, 120), CounterReading(20.0, 120))
    assert text_of("a", quiet).endswith("waits for something outside the transport")
    last = fields_of(CounterReading(0.0), stuck, ended=True)
    assert "waits_for" not in last
    assert text_of("a", last).startswith("a: ended after 20 s at step 120, 6 steps/s")  # 120 steps in 20 s


def test_what_is_unknown_is_null_as_a_field_and_no_text() -> None:
    fields = fields_of(CounterReading(1.0), CounterReading(1.0))
    unknown = {"steps", "loss", "steps_per_s", "samples_per_s", "computing", "sending", "waiting", *MACHINE}
    assert {key for key, value in fields.items() if value is None} == unknown
    assert text_of("a", fields) == "a: step 0, no step, waits for something outside the transport"


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_null(loss: float) -> None:
    assert fields_of(BEFORE, CounterReading(15.0, 120, loss=loss))["loss"] is None


def test_a_group_formed_again_at_an_earlier_step_has_no_negative_rate() -> None:
    fields = fields_of(BEFORE, CounterReading(15.0, 90, samples=10))
    assert (fields["steps_per_s"], fields["samples_per_s"]) == (0.0, 0.0)
