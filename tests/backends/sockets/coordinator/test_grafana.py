"""docs/grafana/simcluster.json: every metric and every label that it names is one that there is."""

from __future__ import annotations

import json
import re
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from simcluster_backends.common.log_line import CounterReading, fields_of
from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk

from simcluster.logs.loki import LABELS
from tests.backends.sockets.coordinator.test_dashboard import a_desk, telemetry
from tests.support.root import ROOT

DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana" / "simcluster.json").read_text(encoding="utf-8"))


def targets(kind: str) -> list[tuple[str, str]]:
    """(expression, legend) of all panels that ask a *kind* of data source."""
    return [
        (target["expr"], target.get("legendFormat", ""))
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
        if target["datasource"]["type"] == kind
    ]


def served() -> dict[str, set[str]]:
    """Metric -> its labels, of a run with a straggler, a lost node and a full link."""
    desk: CoordinatorDesk = a_desk()
    desk.telemetry(telemetry(31))
    families = text_string_to_metric_families(desk.prometheus().decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def test_every_metric_it_names_is_served_with_the_labels_it_shows() -> None:
    known = served()
    named: set[str] = set()
    for expression, legend in targets("prometheus"):
        metrics = re.findall(r"simcluster_\w+", expression)
        assert metrics, expression
        for metric in metrics:
            assert metric in known, metric
            assert set(re.findall(r"{{(\w+)}}", legend)) <= known[metric], (metric, legend)
        named.update(metrics)
    assert len(named) >= 15


def test_every_label_it_asks_loki_for_is_one_that_lines_are_pushed_with() -> None:
    asked = [name for expression, _ in targets("loki") for name in re.findall(r"(\w+)=~", expression)]
    assert {"job", "level"} <= set(asked) <= set(LABELS)
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    for expression, _ in targets("loki"):
        assert set(re.findall(r"\$(\w+)", expression)) <= variables


def test_every_field_it_takes_from_a_nodes_lines_is_one_that_they_have() -> None:
    lines = {"node", *fields_of(CounterReading(0.0), CounterReading(1.0, tokens=64))}
    taken = 0
    for expression, legend in targets("loki"):
        if "| json" in expression:
            fields = set(re.findall(r'(\w+)="\1"', expression))
            (unwrapped,) = re.findall(r"unwrap (\w+)", expression)
            assert {unwrapped, "node"} == fields <= lines, expression
            assert expression.endswith("by (node)")
            assert set(re.findall(r"{{(\w+)}}", legend)) == {"node"}
            taken += 1
    assert taken == 5


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not own & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= own
