"""Readers of files of other tools: each turns text into a ForeignCluster. They are imported when needed."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path

from simcluster.documents.recognise import FileForm
from simcluster.documents.yaml import Document, read_text
from simcluster.errors import UsageError
from simcluster.topology.read.formats.cluster import ForeignCluster, printable

MOST_CHARACTERS = 8_000_000
"""Limit on the text of a file of another tool; its parts take up to a hundred times as much memory."""

log = logging.getLogger("simcluster.topology")

_READERS = {
    "gml": "gml:read_gml",
    "graphml": "graphml:read_graphml",
    "node-link": "node_link:read_node_link",
    "simgrid": "simgrid:read_simgrid",
    "sndlib": "sndlib:read_sndlib",
    "nvidia": "machines:read_nvidia",
    "slurm": "machines:read_slurm",
    "slurm-yaml": "machines:read_slurm_yaml",
    "containerlab": "machines:read_containerlab",
    "hosts": "hosts:read_hosts",
    "ansible": "hosts:read_ansible",
    "mlx": "hosts:read_mlx",
}
"""Name of a form -> "module:function", which takes the text and the name of the file."""


def read_foreign(path: Path, form: FileForm) -> ForeignCluster:
    """Return the cluster in the file at *path*, which has the *form*. Raise UsageError if there is none."""
    if form.name not in _READERS:
        raise UsageError("file", f"{form.title}, which {form.road.replace('FILE', path.name)}", "", str(path))
    module, _, function = _READERS[form.name].partition(":")
    text = read_text(path)
    if len(text) > MOST_CHARACTERS:
        raise UsageError("file", f"{len(text):,} characters", f"at most {MOST_CHARACTERS:,}", str(path))
    found: ForeignCluster = getattr(importlib.import_module(f"{__name__}.{module}"), function)(text, str(path))
    if found.notes:
        before = str(found.head.get("description") or "")
        told = f"Read from {path.name}, which is {form.title}: {'; '.join(found.notes)}."
        found.head["description"] = f"{before} {printable(told)}".strip()
    return found


def load_foreign(path: Path, form: FileForm) -> Document:
    """Return the document of the file at *path*, like `read_foreign`; log what was ignored or changed."""
    found = read_foreign(path, form)
    for warning in found.warnings:
        log.warning("%s: %s", path.name, warning)
    return Document(found.document(), str(path))
