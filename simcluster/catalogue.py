"""The names that are valid in experiment files and commands, for `simcluster list` and shell
completion.

The descriptions of algorithms and workloads are read from source code, since importing them would
load torch.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.wings import open_door

if TYPE_CHECKING:
    from simcluster.topology.model.device import Device
    from simcluster.topology.presets.links import LinkType

_YAML = (".yaml", ".yml")
KINDS = ("algorithms", "workloads", "topologies", "generators", "experiments", "links", "devices", "backends", "models")


def catalogue(kind: str) -> dict[str, str]:
    """Return name -> short description for everything of *kind*, sorted by name.

    *kind* is one of KINDS, or "kinds", which returns the names of the kinds themselves.
    """
    if kind == "kinds":
        return dict.fromkeys(KINDS, "")
    if kind == "backends":
        return {
            "sim": "virtual time, one process",
            "sockets": "TCP between processes",
            "torch": "torch.distributed: under torchrun, Slurm or Kubernetes",
        }
    if kind == "models":
        return dict(open_door("described_presets")())
    if kind in ("topologies", "experiments"):
        from simcluster.documents.shipped import shipped_names

        return dict.fromkeys(shipped_names("topologies" if kind == "topologies" else "experiments"), "")
    if kind in ("links", "devices"):
        from simcluster.topology.presets.links import DEVICES, LINKS

        presets: Mapping[str, Any] = LINKS if kind == "links" else DEVICES
        return {name: _of_preset(preset) for name, preset in sorted(presets.items())}
    if kind == "generators":
        from simcluster.topology.presets.generators import GENERATORS

        return {name: _of_generator(make) for name, make in sorted(GENERATORS.items())}
    return {name: _in_words(module, name) for name, module in _homes(kind).items()}


def fields(kind: str) -> dict[str, Any]:
    """Return name -> properties for *kind* "links" or "devices"; for any other kind, return
    `catalogue(kind)`.

    The name of a property with a unit ends in that unit.
    """
    if kind not in ("links", "devices"):
        return dict(catalogue(kind))
    from simcluster.topology.presets.links import DEVICES, LINKS

    if kind == "links":
        return {name: _link_fields(link) for name, link in sorted(LINKS.items())}
    return {name: _device_fields(device) for name, device in sorted(DEVICES.items())}


def _link_fields(link: LinkType) -> dict[str, Any]:
    return {
        "bandwidth_bps": 8 * link.bandwidth_Bps,
        "latency_s": link.latency_s,
        "duplex": link.duplex,
        "source": link.source,
    }


def _device_fields(device: Device) -> dict[str, Any]:
    found = device.accelerator
    own = _device_numbers(device)
    return own if found is None else own | {"accelerator": _device_numbers(device.on(found.kind))}


def _device_numbers(device: Device) -> dict[str, Any]:
    memory_bandwidth_bps = 8 * device.memory_bandwidth_Bps
    return {
        "computes_on": device.computes_on,
        "flops_per_s": device.flops_per_s,
        # JSON has no infinity, and None means "no limit".
        "memory_bandwidth_bps": memory_bandwidth_bps if math.isfinite(memory_bandwidth_bps) else None,
        "memory_bytes": device.memory_bytes,
        "usable_memory_bytes": device.usable_bytes,
        "work_overhead_s": device.work_overhead_s,
        "operator_overhead_s": device.operator_overhead_s,
        "power_idle_w": device.power_idle_W,
        "power_busy_w": device.power_busy_W,
        "price_usd_per_h": device.price_USD_per_h,
        "source": device.source,
    }


def _of_preset(preset: Any) -> str:
    """Return a description of a link, or of a device and its accelerator, with its numbers."""
    found = getattr(preset, "accelerator", None)
    return str(preset) if found is None else f"{preset}; on {found.kind}: {preset.on(found.kind)}"


def _of_generator(make: Callable[..., Any]) -> str:
    """Return the settings of *make* with their defaults, then the first line of its docstring."""
    parameters = inspect.signature(make).parameters.values()
    settings = ", ".join(str(parameter.replace(annotation=parameter.empty)) for parameter in parameters)
    return f"({settings})  {(make.__doc__ or '').splitlines()[0].replace('*', '')}"


def names(kind: str) -> list[str]:
    """Return the names in `catalogue(kind)`.

    This is faster than the catalogue, since it need not read the descriptions.
    """
    return list(_homes(kind) if kind in ("algorithms", "workloads") else catalogue(kind))


def files(incomplete: str) -> list[str]:
    """Return the directories and YAML files that may complete the path *incomplete* in a shell.

    Hidden files are included only if the last part of *incomplete* begins with a dot.
    """
    # Path drops a trailing separator. With a letter after it, `runs/` is completed to the contents
    # of runs.
    typed = Path(incomplete + "x")
    begin = typed.name[:-1]
    found = sorted(path for path in typed.parent.glob("*") if path.name.startswith(begin))
    shown = [path for path in found if begin or not path.name.startswith(".")]
    return [f"{path}/" if path.is_dir() else str(path) for path in shown if path.is_dir() or path.suffix in _YAML]


def _homes(kind: str) -> dict[str, str]:
    """Return name -> module of all algorithms or workloads, read from the source of their
    package.
    """
    body = _source(f"simcluster.{kind}")
    imports = [statement for statement in body if isinstance(statement, ast.ImportFrom) and statement.module]
    homes = {alias.name: str(statement.module) for statement in imports for alias in statement.names}
    if kind == "workloads":
        return {name: homes[name] for name in sorted(_keys(body, "WORKLOADS"))}
    # Algorithms are defined in the modules simcluster.algorithms.FAMILY.MODULE. The modules
    # directly in simcluster.algorithms hold what several algorithms share.
    return {name: module for name, module in sorted(homes.items()) if module.count(".") == 3}


def _keys(body: list[ast.stmt], table: str) -> list[str]:
    """Return the keys of the dict literal that the statements *body* assign to the name *table*."""
    for statement in body:
        if isinstance(statement, ast.AnnAssign) and getattr(statement.target, "id", None) == table:
            assert isinstance(statement.value, ast.Dict), table
            return [str(key.value) for key in statement.value.keys if isinstance(key, ast.Constant)]
    raise AssertionError(f"no table {table}")


def _source(module: str) -> list[ast.stmt]:
    """Return the statements of *module*, which is part of simcluster, without running them."""
    spec = find_spec("simcluster")
    assert spec is not None, module
    assert spec.origin is not None, module
    path = Path(spec.origin).parent.joinpath(*module.split(".")[1:])
    return ast.parse(
        (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    ).body


def _function(body: list[ast.stmt], name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == name:
            return statement
    raise AssertionError(f"no function {name}")


def _in_words(module: str, name: str) -> str:
    """Return the settings of the function *name*, with defaults, and the first line of its
    docstring.
    """
    body = _source(module)
    function = _function(body, name)
    keywords = [*zip((one.arg for one in function.args.kwonlyargs), function.args.kw_defaults, strict=True)]
    if any(getattr(decorator, "id", None) == "with_recipe" for decorator in function.decorator_list):
        keywords += _of_recipe()
    settings = ", ".join(name if default is None else f"{name}={_shown(default, body)}" for name, default in keywords)
    text = ast.get_docstring(function)
    # Docstrings mark arguments with asterisks, which would only clutter a terminal.
    return f"({settings})  {text.splitlines()[0].replace('*', '')}" if text else f"({settings})"


def _of_recipe() -> list[tuple[str, ast.expr | None]]:
    """Return (setting, default) for the settings that every workload has."""
    classes = [one for one in _source("simcluster.workloads.recipe") if isinstance(one, ast.ClassDef)]
    return [(ast.unparse(one.target), one.value) for one in classes[0].body if isinstance(one, ast.AnnAssign)]


def _shown(default: ast.expr, body: list[ast.stmt]) -> str:
    """Return the value of *default* as Python writes it, or its source code if it is not a literal.

    If it is the name of a constant, the name is looked up in *body* and in imported modules of
    simcluster.
    """
    named = default
    while isinstance(named, ast.Name):
        found = _constant(named.id, body)
        if found is None:
            break
        named, body = found
    try:
        return repr(ast.literal_eval(named))
    except ValueError:
        return ast.unparse(default)


def _constant(name: str, body: list[ast.stmt]) -> tuple[ast.expr, list[ast.stmt]] | None:
    """Return (the expression that *body* assigns to *name*, the statements before that).

    If *body* imports the name from simcluster, continue in that module. Return None if the name is
    not found.
    """
    # The last assignment before the use is valid, so start from the end.
    for place, statement in reversed([*enumerate(body)]):
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return value, body[:place]
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                return value, body[:place]
            case ast.ImportFrom(module=str() as module, names=names, level=0) if module.startswith("simcluster."):
                original = next((alias.name for alias in names if name == (alias.asname or alias.name)), None)
                if original is not None:
                    return _constant(original, _source(module))
    return None
