"""Where the repository lies."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
TOOLS = ROOT / "tools"
PACKAGES = (ROOT / "simcluster", ROOT / "backends" / "simcluster_backends")
