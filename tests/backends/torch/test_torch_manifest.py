"""The manifest for Kubernetes, held against the part of PyTorchJob's schema that it uses."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.support.root import ROOT

SCHEMA: dict[str, Any] = {
    "apiVersion": lambda value: value == "kubeflow.org/v1",
    "kind": lambda value: value == "PyTorchJob",
    "metadata": {"name": str},
    "spec": {
        "pytorchReplicaSpecs": {
            kind: {
                "replicas": int,
                "restartPolicy": lambda value: value in ("Never", "OnFailure", "Always", "ExitCode"),
                "template": {
                    "spec": {"containers": [{"name": lambda v: v == "pytorch", "image": str, "command": [str]}]}
                },
            }
            for kind in ("Master", "Worker")
        }
    },
}
"""What the operator asks for: it sets RANK, WORLD_SIZE and MASTER_* in the container called pytorch."""


def misfits(value: Any, schema: Any, where: str = "") -> list[str]:
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [where]
        missing = [f"{where}/{key}" for key in schema if key not in value]
        return missing + [m for k in schema if k in value for m in misfits(value[k], schema[k], f"{where}/{k}")]
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [where]
        return [m for index, item in enumerate(value) for m in misfits(item, schema[0], f"{where}/{index}")]
    fits = type(value) is schema if isinstance(schema, type) else schema(value)
    return [] if fits else [where]


def test_the_manifest_is_a_pytorchjob_of_as_many_ranks_as_the_topology_has() -> None:
    document, manifest = yaml.safe_load_all((ROOT / "docs" / "torch" / "pytorchjob.yaml").read_text())
    assert misfits(manifest, SCHEMA) == []
    broken = json.loads(json.dumps(manifest))  # the two templates are one in the file
    del broken["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolicy"]
    broken["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] = "main"
    specs = "/spec/pytorchReplicaSpecs"
    assert misfits(broken, SCHEMA) == [
        f"{specs}/Master/restartPolicy",
        f"{specs}/Worker/template/spec/containers/0/name",
    ]
    assert document["kind"] == "ConfigMap"
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    topology = yaml.safe_load(document["data"]["cluster.yaml"])
    assert sum(part["replicas"] for part in replicas.values()) == len(topology["nodes"])
    assert replicas["Master"]["replicas"] == 1
    for part in replicas.values():
        (container,) = part["template"]["spec"]["containers"]
        command = container["command"]
        assert command[:5] == ["simcluster", "run", "quickstart", "--backend", "torch"]
        mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert command[command.index("--topology") + 1] == "/cluster/cluster.yaml"
        assert mounted["/cluster"] == "cluster"
        volumes = {volume["name"]: volume for volume in part["template"]["spec"]["volumes"]}
        assert volumes["cluster"]["configMap"]["name"] == document["metadata"]["name"]
