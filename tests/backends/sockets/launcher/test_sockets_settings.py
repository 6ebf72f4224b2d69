"""What a sockets run may be asked for: options, addresses and keys, all that is wrong with them at once."""

from __future__ import annotations

import stat
from math import inf
from pathlib import Path

import pytest
from simcluster_backends.common.options import GRACE_S
from simcluster_backends.sockets.launcher.settings import read_options
from simcluster_backends.sockets.wire.keys import generate_key, read_key, write_key

from simcluster.errors import UsageError
from simcluster.fault_plans import kinds as fault_kinds
from simcluster.job import ClusterJob

KEY = b"k" * 32


def test_a_key_file_is_read_back_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path, key = tmp_path / "key", generate_key()
    write_key(path, key)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path) == key
    with pytest.raises(UsageError):
        write_key(path, key)
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(UsageError, match=f"mode {mode:04o}, expected mode 0600"):
            read_key(path)


def test_a_key_may_be_base64_and_must_be_long_enough(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=\n")  # 32 times k
    assert read_key(path) == KEY
    for text in ("6b" * 31, "not a key!", ""):
        path.write_text(text)
        with pytest.raises(UsageError, match="32") as error:
            read_key(path)
        assert "6b6b6b" not in str(error.value), "an error must not show the key"


def test_all_wrong_options_are_named_at_once() -> None:
    job = ClusterJob(
        ["a", "b", "a"],
        "{}",
        addresses=[None],
        faults=(
            fault_kinds.Crash(spells=((1.0, inf),), rank=7),
            fault_kinds.Loss(spells=((1.0, 2.0),), link="a-b", probability=0.1),
        ),
        options={
            "min_workers": 4,
            "heartbeat": 1,
            "stuck_s": -1,
            "start_s": "soon",
            "rendezvous": "10.0.0.1:0",
            "uvloop": 3,
        },
    )
    with pytest.raises(UsageError) as error:
        read_options(job)
    wrong = {"min_workers", "heartbeat", "start_s", "uvloop", "stuck_s", "rendezvous", "names", "addresses"}
    keys = [problem.key for problem in error.value.problems]
    assert sorted(keys) == sorted(wrong | {"faults[0].node", "faults[1].kind"})
    assert "did you mean 'heartbeat_s'?" in str(error.value)


@pytest.mark.parametrize(
    ("host", "why"),
    [("10.1.2.3", "without a key"), ("0.0.0.0", "one address"), ("example.org", "without a key")],
)
def test_off_loopback_nothing_is_started_without_a_key(host: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_options(ClusterJob(["a"], "{}", options={"rendezvous": f"{host}:7000"}))


def test_nodes_started_by_hand_need_a_key_file() -> None:
    with pytest.raises(UsageError, match="key_file"):
        read_options(ClusterJob(["a", "b"], "{}", addresses=[None, ("127.0.0.1", 7000)]))


def test_a_time_to_stop_at_is_a_limit_some_time_later_unless_one_is_given() -> None:
    assert read_options(ClusterJob(["a"], "{}"))[0].limit_s is None
    assert read_options(ClusterJob(["a"], "{}", time_s=10.0))[0].limit_s == 10.0 + GRACE_S
    assert read_options(ClusterJob(["a"], "{}", time_s=10.0, options={"limit_s": 5}))[0].limit_s == 5
