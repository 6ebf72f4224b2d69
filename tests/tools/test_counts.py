"""The programs that count code tokens, and calls between files."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tools.moves import MoveCounter
from tools.size import code_tokens, place


def test_code_tokens_leave_out_comments_strings_of_their_own_and_layout(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""About."""\n\nlimit = 3  # of them\n"""More."""\n\ndef f():\n    """Return."""\n    return "a"\n'
    )
    assert code_tokens(file) == len(["limit", "=", "3", "def", "f", "(", ")", ":", "return", "a"])


def test_every_file_has_a_part_and_a_package() -> None:
    places = {
        "simcluster/units.py": ("core", "(modules)"),
        "simcluster/cli/run.py": ("core", "cli"),
        "simcluster/lab/sweeps/table.py": ("lab", "sweeps"),
        "backends/simcluster_backends/sim/run.py": ("backends", "sim"),
        "tests/core/test_units.py": ("tests and tools", "tests/core"),
        "tools/size.py": ("tests and tools", "tools"),
    }
    assert {name: place(Path(name)) for name in places} == places


def test_a_call_into_another_file_is_a_move_also_through_a_library(tmp_path: Path) -> None:
    (tmp_path / "callee.py").write_text("def inner():\n    pass\n\ndef outer():\n    inner()\n")
    (tmp_path / "caller.py").write_text(
        "import runpy\ncall = runpy.run_path('%s')\ncall['outer']()\n" % (tmp_path / "callee.py")
    )
    counter = MoveCounter(tmp_path)
    sys.setprofile(counter.profile)
    try:
        runpy.run_path(str(tmp_path / "caller.py"))
    finally:
        sys.setprofile(None)
    move = tuple(f"{tmp_path.name}/{name}.py" for name in ("caller", "callee"))
    assert counter.moves == {move: 2}  # the module itself, then outer; inner is in the same file
