"""The files of schemas/, written from the models that read such files: `python -m tests.support.schemas`."""

from __future__ import annotations

from simcluster.schemas.experiment import experiment_schema
from simcluster.schemas.topology import topology_schema
from tests.support.root import ROOT

FOLDER = ROOT / "schemas"
MAKERS = {"topology": topology_schema, "experiment": experiment_schema}

if __name__ == "__main__":
    for name, make in MAKERS.items():
        (FOLDER / f"{name}.json").write_text(make(), encoding="utf-8")
