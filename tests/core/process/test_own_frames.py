"""User code is what is neither Python's, nor a package's, nor ours, nor the script that started the command."""

from __future__ import annotations

import os
import sysconfig

import simcluster
from simcluster.process.own_frames import is_own


def test_the_script_of_a_command_is_no_user_code() -> None:
    scripts = sysconfig.get_paths()["scripts"]
    assert not is_own(os.path.join(scripts, "simcluster"))
    assert not is_own(simcluster.__file__)
    assert not is_own(os.__file__)
    assert is_own(__file__)
