"""Files of other tools are known by their first lines, our own are not taken for theirs, and none takes long."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from simcluster.documents.recognise import FORMS, HEAD_BYTES, recognise, refuse_foreign
from simcluster.documents.shipped import shipped_folder
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.topology import load

FILES = {
    "gml": ("a.txt", 'Creator "me"\ngraph [\n  node [ id 0 ]\n]\n'),
    "graphml": ("a.xml", "<?xml version='1.0'?>\n<!-- a graph -->\n<g:graphml xmlns:g='x'/>"),
    "simgrid": ("a.xml", '<?xml version="1.0"?><!DOCTYPE platform SYSTEM "simgrid.dtd"><platform version="4.1"/>'),
    "sndlib": ("a.xml", '<network xmlns="http://sndlib.zib.de/network"/>'),
    "nccl": ("topo.xml", '<system version="1"><cpu/></system>'),
    "xml": ("a.yaml", "<html></html>"),
    "nvidia": ("topo", "\t\x1b[4mGPU0\tGPU1\x1b[0m\nGPU0\t X \tNV4\n"),
    "slurm": ("topology.conf", "# a tree\nSwitchName=s0 Nodes=a[1-2]\n"),
    "slurm-yaml": ("topology.yaml", "- topology: t\n  tree:\n    switches:\n      - switch: s\n        nodes: a\n"),
    "astra": ("a.yml", "topology: [ Ring ]\nnpus_count: [ 4 ]\n"),
    "containerlab": ("a.clab.yml", 'name: a\ntopology:\n  links:\n    - endpoints: ["a:e1", "b:e1"]\n'),
    "mlx": ("hosts.json", '[{"ssh": "a", "ips": ["10.0.0.1"]}]'),
    "jsonl": ("a.jsonl", '{"timestamp": 0}\n{"timestamp": 1}\n'),
    "node-link": ("a.json", '{"nodes": [], "links": []}'),
    "python": ("train.py", "print()\n"),
    "ansible": ("inventory", "[pis]\npi1\npi2\n"),
    "hosts": ("hostfile", "node1 slots=4\nnode2 slots=4  # the other\n"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_recognised_by_its_first_lines(name: str, tmp_path: Path) -> None:
    file, text = FILES[name]
    path = tmp_path / file
    path.write_text(text)
    found = recognise(path)
    assert found is not None
    assert found.name == name
    if name == "node-link":
        return
    with pytest.raises(UsageError) as error:  # and is no experiment
        read_experiment(str(path))
    (line,) = str(error.value).splitlines()
    assert file in line
    if found.road:
        with pytest.raises(UsageError, match=r"which is (not read|run by|no topology)"):
            load(path)


def test_every_form_has_a_file_here_and_our_own_files_have_none(tmp_path: Path) -> None:
    assert {form.name for form in FORMS} == FILES.keys()
    own = [*shipped_folder("topologies").glob("*.yaml"), *shipped_folder("experiments").rglob("*.yaml")]
    assert len(own) > 10
    assert {recognise(path) for path in own} == {None}
    (tmp_path / "flows.yaml").write_text("[{src: a, dst: b, bytes: 1}]\n")
    assert recognise(tmp_path / "flows.yaml") is None
    assert recognise(tmp_path / "absent") is None
    refuse_foreign(tmp_path / "flows.yaml", "experiment")


@pytest.mark.parametrize(
    "part", ["\n", " ", "a", "<!--", "<!---->", "#", "{", "[", "a@", "\t\n", 'a "', "- ", "slots="]
)
def test_a_file_of_one_repeated_part_is_looked_at_in_no_time(part: str, tmp_path: Path) -> None:
    for file in ("a", "a.yaml"):
        path = tmp_path / file
        path.write_text(part * (2 * HEAD_BYTES // len(part)))
        begin = time.process_time()
        recognise(path)
        assert time.process_time() - begin < 1
