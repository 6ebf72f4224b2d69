"""Install the packages that a machine lacks from a folder of wheels, and say what the machine is."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tools.accelerator_parts.context import PartContext
from tools.accelerator_parts.rows import Skipped, measured

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("gguf", "pytest", "pytest-timeout", "hypothesis")
"""What the tests and the part `generate` need besides the dependencies of simcluster."""

BROUGHT = ("numpy", "networkx", "pyyaml", "safetensors", "tqdm", "packaging", "typing-extensions")
"""Packages that torch and transformers bring, so that they need not travel."""

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
IMPORTED = (
    "torch", "transformers", "simpy", "networkx", "numpy", "msgspec", "google_crc32c", "pydantic", "yaml", "typer",
    "rich", "pandas", "pyarrow", "plotly", "safetensors", "psutil", "gguf", "pytest", "hypothesis",
)  # fmt: skip


def make_wheels(folder: Path, without: Iterable[str]) -> int:
    """Download the wheels for Python 3.12 on x86-64 Linux into *folder*; return pip's exit code.

    The packages *without* and those in BROUGHT are left out.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), "--only-binary=:all:"]
    words += ["--implementation", "cp", "--python-version", "3.12"]
    for platform in PLATFORMS:
        words += ["--platform", platform]
    code = subprocess.run([*words, *project["dependencies"], *TESTS], check=False).returncode
    left_out = {_spelt(name) for name in (*BROUGHT, *without)}
    for wheel in folder.glob("*.whl"):
        if _spelt(_name(wheel)) in left_out:
            wheel.unlink()
    return code


def install(at: PartContext) -> None:
    """Install what is missing into `site` of *folder*, which all parts import."""
    with measured(at.table, "packages", "installed") as row:
        if at.wheels is None:
            raise Skipped("no --wheels: the packages of this machine are used")
        missing = [_name(wheel) for wheel in sorted(at.wheels.glob("*.whl")) if not _is_installed(_name(wheel))]
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(at.wheels)]
        words += ["--no-deps", "--no-compile", "--target", str(at.folder / "site")]
        if missing:
            subprocess.run([*words, *missing], check=True)
        row.value = str(len(missing))
        row.why = ", ".join(missing)


def card(at: PartContext) -> None:
    """Say what computes, and which packages cannot be imported."""
    with measured(at.table, "imports", "packages") as row:
        lacking = []
        for name in IMPORTED:
            try:
                import_module(name)
            except ImportError as error:
                lacking.append(f"{name} ({error})")
        if lacking:
            raise ImportError(", ".join(lacking))
        row.value = str(len(IMPORTED))
        row.why = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    with measured(at.table, "device", "of this kind") as row:
        import torch

        from simcluster.compute import device_of, name_of

        row.why = name_of(device_of(at.device))
        row.value = str(torch.cuda.device_count() if at.device == "cuda" else 1)


def _name(wheel: Path) -> str:
    return wheel.name.partition("-")[0]


def _spelt(name: str) -> str:
    return name.lower().replace("_", "-")


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
