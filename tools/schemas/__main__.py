"""`python -m tools.schemas`: write the schemas from the models of topologies and experiments."""

from __future__ import annotations

from tests.support.root import ROOT
from tools.schemas.experiment import experiment_schema
from tools.schemas.topology import topology_schema

FOLDER = ROOT / "schemas"
MAKERS = {"topology": topology_schema, "experiment": experiment_schema}

if __name__ == "__main__":
    for name, make in MAKERS.items():
        (FOLDER / f"{name}.json").write_text(make(), encoding="utf-8")
