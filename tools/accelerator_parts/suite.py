"""The tests of the suite that compute on a device, on the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from xml.etree import ElementTree

from tools.accelerator_parts.context import PartContext
from tools.accelerator_parts.packages import ROOT
from tools.accelerator_parts.rows import measured

TESTS = "tests/core/compute/test_on_a_real_device.py"
VARIABLE = "SIMCLUSTER_DEVICE"
"""The environment variable that names the device to these tests."""


def device_tests(at: PartContext) -> None:
    """Run the tests and count them."""
    with measured(at.table, "device tests", "tests passed") as row:
        results = at.folder / "tests.xml"
        # Another version of torch may warn of what the suite's own version does not.
        words = [sys.executable, "-m", "pytest", TESTS, "-W", "ignore", f"--junitxml={results}"]
        done = subprocess.run(words, cwd=ROOT, env=os.environ | {VARIABLE: at.device}, check=False)
        cases = list(ElementTree.parse(results).iter("testcase"))
        bad = [case.get("name", "") for case in cases if len(case)]  # a failure, an error, or a reason to skip
        if bad or done.returncode:
            raise AssertionError(f"{len(bad)} of {len(cases)} did not pass: {', '.join(bad)}")
        row.value = str(len(cases))
