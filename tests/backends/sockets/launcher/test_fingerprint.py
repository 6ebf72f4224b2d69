"""What must be equal on all machines is compared, and each difference told."""

from __future__ import annotations

from simcluster_backends.sockets.launcher.machine_messages import FILES_NAMED, Fingerprint, differences, fingerprint


def test_this_machine_may_take_part_in_its_own_runs() -> None:
    here = fingerprint()
    assert differences(here, fingerprint()) == []
    assert {"simcluster", "protocol", "python", "torch", "numpy"} == here.versions.keys()
    assert "+" not in here.versions["torch"], "a build for another processor is the same version"
    assert "simcluster_backends/sockets/launcher/machine_messages.py" in here.files


def test_every_difference_is_named_with_both_sides() -> None:
    here = Fingerprint({"torch": "2.13.0", "python": "3.11"}, {"a.py": "1", "b.py": "2"})
    there = Fingerprint({"torch": "2.12.0"}, {"a.py": "1", "b.py": "3", "c.py": "4"})
    assert differences(here, there) == [
        "torch 2.12.0, here 2.13.0",
        "python none, here 3.11",
        "other code in b.py, c.py",
    ]


def test_of_many_files_that_differ_the_first_are_named_and_the_others_counted() -> None:
    many = {f"{number}.py": "x" for number in range(FILES_NAMED + 3)}
    (words,) = differences(Fingerprint({}, {}), Fingerprint({}, many))
    assert words.endswith("4.py and 3 more")
