"""Own code from memory becomes source that stands alone, with imports, helpers, constants, tensors; or is refused."""

from __future__ import annotations

import functools
import importlib
import shutil
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from simcluster.documents.captured import SourceModule, capture, capture_value
from simcluster.documents.captured.source import content_of, files_with, found_in, write_sources
from simcluster.documents.user_code import files_of, load_function
from simcluster.errors import UsageError
from simcluster.process.own_frames import origin, original
from simcluster.workloads import Workload, sgd
from tests.support.cells import Cells


def loaded(source: SourceModule, folder: Path) -> Any:
    """The function of *source*, loaded by path from what is written in *folder*."""
    reference = source.held_at(folder)
    write_sources([reference])
    return load_function(reference, Path("/"), "own")[0]


def test_a_cells_function_stands_alone_with_imports_helpers_and_constants_of_other_cells(tmp_path: Path) -> None:
    cells = Cells(
        "import math\nfrom torch.nn import functional as F\nimport collections.abc\n",
        "SCALE = 3\nNAMES = ('a', ['b', {'c': -0.5}])\n",
        "SCALE = 4\n\ndef scaled(x):\n    return x * SCALE\n",
        "def mine(x, *, power: int = 2):\n    # a comment\n    inner = [scaled(y) for y in (x,)]\n"
        "    return math.pow(inner[0], power), NAMES, F.relu.__name__, collections.abc.Mapping.__name__\n",
    )
    source = capture(cells.mine, "algorithm")
    text = source.files[source.main].decode()
    assert "# a comment" in text, "the text is the user's"
    assert loaded(source, tmp_path)(2) == (64.0, ("a", ["b", {"c": -0.5}]), "relu", "Mapping")  # (2 * 4)^2


def test_the_value_counts_that_a_constant_has_when_it_is_captured(tmp_path: Path) -> None:
    cells = Cells("rate = 1", "def mine():\n    return rate\n")
    first = capture(cells.mine, "algorithm")
    second = capture(cells.run("rate = 2").mine, "algorithm")
    assert [loaded(source, tmp_path)() for source in (first, second)] == [1, 2]
    assert first.digest != second.digest


def test_closures_lambdas_and_partials_keep_what_they_hold(tmp_path: Path) -> None:
    cells = Cells(
        "from functools import partial\n"
        "def adder(n):\n    return lambda x: x + n\n"
        "one, two = (lambda x: x + 1), (lambda x: x * 2)\n"
        "five = adder(5)\n"
        "def power(x, y):\n    return x ** y\n"
        "square = partial(power, y=2)\n"
        "def mine():\n    return [one(10), two(10), five(10), square(10)]\n"
    )
    assert loaded(capture(cells.mine, "x"), tmp_path)() == [11, 20, 15, 100]


def test_a_decorated_function_is_captured_with_its_decorator(tmp_path: Path) -> None:
    cells = Cells(
        "import functools\n"
        "def twice(f):\n    @functools.wraps(f)\n    def inner(x):\n        return 2 * f(x)\n    return inner\n",
        "@twice\ndef mine(x):\n    return x + 1\n",
    )
    assert loaded(capture(cells.mine, "x"), tmp_path)(4) == 10  # 2 * (4 + 1)


def test_a_workload_object_is_the_same_workload_again_with_its_tensors(tmp_path: Path) -> None:
    inputs, targets = torch.randn(12, 3), torch.arange(12) % 2
    width = 5
    given = Workload(
        model=lambda: nn.Sequential(nn.Linear(3, width), nn.Linear(width, 2)),
        loss=nn.functional.cross_entropy,
        train=(inputs, targets),
        optimizer=sgd(0.25),
        batch_size=4,
        clip_norm=1.5,
    )
    source = capture_value(given, "workload")
    made = loaded(source, tmp_path)()
    assert isinstance(made, Workload)
    assert torch.equal(made.train[0], inputs)
    assert torch.equal(made.train[1], targets)
    assert (made.batch_size, made.clip_norm, made.optimizer.keywords["lr"]) == (4, 1.5, 0.25)
    assert [tuple(p.shape) for p in made.model().parameters()] == [(5, 3), (5,), (2, 5), (2,)]


OBJECTS = """
import collections
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Own(nn.Module):
    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma
        self.register_buffer("scale", torch.full((2,), 3.0))

    def forward(self, outputs, targets):
        return (nn.functional.cross_entropy(outputs * self.scale, targets)) * self.gamma

class Endless(IterableDataset):
    def __init__(self):
        self.me, self.rows = self, collections.OrderedDict(a=torch.ones(3), b=2)

    def __iter__(self):
        return iter([self.rows["a"]] * self.rows["b"])

def mine():
    return loss, endless, loader, weight
loss, endless, weight = Own(2.0), Endless(), nn.Parameter(torch.ones(2), requires_grad=False)
loader = DataLoader(endless, batch_size=3)
"""


def test_an_object_is_made_again_from_its_class_and_attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = Cells(OBJECTS)
    monkeypatch.setitem(sys.modules, "__main__", types.SimpleNamespace(**cells.names))
    loss, endless, loader, weight = loaded(capture(cells.mine, "x"), tmp_path)()
    batch = torch.randn(5, 2), torch.tensor([0, 1, 1, 0, 1])
    assert torch.equal(loss(*batch), cells.loss(*batch))
    assert dict(loss.named_buffers()).keys() == {"scale"}
    assert endless.me is endless, "an object that holds itself"
    assert loader.dataset is endless, "an object in two places"
    assert (loader.batch_size, len(list(endless))) == (3, 2)
    assert isinstance(weight, nn.Parameter)
    assert not weight.requires_grad


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, functools.partial(torch.optim.SGD, lr=0.5), torch.optim.AdamW])
def test_a_class_whose_module_its_package_hides_is_found(tmp_path: Path, optimizer: Any) -> None:
    made = loaded(capture_value([optimizer, torch.optim.lr_scheduler.StepLR], "x"), tmp_path)()
    assert getattr(made[0], "func", made[0]) is getattr(optimizer, "func", optimizer)
    assert getattr(made[0], "keywords", {}) == getattr(optimizer, "keywords", {})
    assert made[1] is torch.optim.lr_scheduler.StepLR


def test_lines_of_a_source_are_known_by_where_they_were_copied_from(tmp_path: Path) -> None:
    text = "import math\ndef helper(x):\n    return math.sqrt(x)\n"
    text += "def maker(n):\n    def mine(x):\n        y = n\n        return helper(x) + y\n    return mine\n"
    cells = Cells(text)
    file = cells.helper.__code__.co_filename
    function = loaded(capture(cells.maker(3), "x"), tmp_path)
    with pytest.raises(ValueError, match="math domain") as caught:
        function(-1)
    copied = traceback.extract_tb(caught.value.__traceback__)[1:]
    assert [origin(frame.filename, frame.lineno or 0) for frame in copied] == [(file, 7), (file, 3)]
    assert original(f"at {copied[0].filename}:{copied[0].lineno} (mine)") == f"at {file}:7 (mine)"
    assert original("at elsewhere.py:7 (mine)") == "at elsewhere.py:7 (mine)"


def test_own_modules_travel_with_it_and_installed_ones_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ownpkg").mkdir()
    (tmp_path / "ownpkg" / "__init__.py").write_text("from ownpkg.inner import value\n")
    (tmp_path / "ownpkg" / "inner.py").write_text("import ownhelp\nvalue = ownhelp.seven\n")
    (tmp_path / "ownhelp.py").write_text("seven = 7\n")
    (tmp_path / "ownother.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("ownpkg", "ownother"):
        importlib.import_module(name)
    cells = Cells("import ownpkg, torch\ndef mine():\n    return ownpkg.value, torch.pi\n")
    source = capture(cells.mine, "x")
    assert set(source.files) == {"mine.py", "ownpkg/__init__.py", "ownpkg/inner.py", "ownhelp.py"}
    reference = source.held_at(tmp_path / "run")
    write_sources([reference])
    place = Path(reference.rpartition(":")[0]).parent
    sent = {path.relative_to(place).as_posix() for path in files_of([reference]) if path.is_relative_to(place)}
    assert sent == set(source.files), "all of it goes to a node on another machine"
    for name in ("ownpkg", "ownpkg.inner", "ownhelp", "ownother"):
        sys.modules.pop(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stream = (i for i in range(3))\ndef mine():\n    return next(stream)\n", "stream of mine, a generator"),
        ("import threading\nlock = threading.Lock()\ndef mine():\n    return lock\n", "lock of mine, a lock"),
        ("mine = lambda: 3\n", "a lambda, expected a function with a name"),
        ("from torch import nn\nnet = nn.Linear(2, 2)\ndef mine():\n    return net\n", "with weights"),
        (
            "import sys\nhere = sys.modules[__name__]\ndef mine():\n    return here\n",
            "a module that cannot be imported",
        ),
        ("import functools\ndef f(x):\n    return x\nmine = functools.partial(f, 3)\n", "only keywords"),
    ],
)
def test_what_cannot_travel_is_an_error_that_names_it(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        capture(Cells(text).mine, "workload")
    assert words in str(caught.value)


def test_a_function_without_source_is_refused_in_a_sentence() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def mine():\n    return 1\n", names)
    with pytest.raises(UsageError, match="unknown source; write it in a notebook's cell or a file"):
        capture(names["mine"], "workload")


def test_the_keywords_of_nested_partials_are_settings_and_the_outer_one_wins() -> None:
    cells = Cells("def mine(*, a: int = 0, b: int = 0):\n    return a, b\n")
    given = functools.partial(functools.partial(cells.mine, a=1, b=1), b=2)
    assert capture(given, "x").settings == {"a": 1, "b": 2}


def test_nothing_is_written_until_it_is_asked_for_and_an_altered_file_is_no_source(tmp_path: Path) -> None:
    source = capture(Cells("def mine():\n    return 41\n").mine, "x")
    reference = source.held_at(tmp_path)
    file = Path(reference.rpartition(":")[0])
    assert load_function(reference, Path("/"), "own")[0]() == 41
    assert list(tmp_path.iterdir()) == []
    write_sources([reference])
    assert files_with(file) == [file]
    file.write_text(content_of(file).decode().replace("41", "42"))
    assert files_with(file) == []


def test_a_source_is_found_where_its_run_has_moved_to(tmp_path: Path) -> None:
    reference = capture(Cells("def mine():\n    return 1\n").mine, "x").held_at(tmp_path / "run")
    write_sources([reference])
    assert found_in(tmp_path / "elsewhere", reference) == reference
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = found_in(tmp_path / "moved", reference)
    assert moved == reference.replace("/run/", "/moved/")
    assert load_function(moved, Path("/"), "own")[0]() == 1


@pytest.mark.parametrize("linked", ["", "source", "source/{digest}", "source/{digest}/mine.py", "source/{digest}/x"])
def test_a_moved_source_is_not_looked_for_behind_a_link(tmp_path: Path, linked: str) -> None:
    source = capture(Cells("def mine():\n    return 1\n").mine, "x")
    reference = source.held_at(tmp_path / "run")
    write_sources([reference])
    (tmp_path / "run").rename(tmp_path / "moved")
    place = tmp_path / "moved" / linked.format(digest=source.digest)
    away = tmp_path / "away"
    place.rename(away) if place.exists() else away.touch()
    place.symlink_to(away)
    is_found = found_in(tmp_path / "moved", reference) != reference
    assert is_found == (not linked), "only the folder itself may be a link"


def test_a_copy_of_a_run_uses_its_own_source_whatever_became_of_the_first(tmp_path: Path) -> None:
    reference = capture(Cells("def mine():\n    return 1\n").mine, "x").held_at(tmp_path / "run")
    write_sources([reference])
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert found_in(tmp_path / "copy", reference) == reference.replace("/run/", "/copy/")
    assert found_in(tmp_path / "elsewhere", reference) == reference


def test_a_file_is_not_named_like_a_module_that_python_has() -> None:
    assert capture(Cells("def random():\n    return 1\n").random, "x").main == "own_random.py"
