"""Writes the variables and arguments of each rank to a file in the directory that is the first argument."""

import json
import os
import random
import sys
from pathlib import Path

import numpy
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
names = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "TORCHELASTIC_", "MASTER_", "OMP_NUM_THREADS")
found = {
    "variables": {name: value for name, value in os.environ.items() if name.startswith(names)},
    "argv": sys.argv,
    "name": __name__,
    "file": __file__,
    "imports from": sys.path[0],
    "threads": torch.get_num_threads(),
    "drawn": [torch.rand(()).item(), random.random(), numpy.random.random()],
    "group": [dist.get_rank(), dist.get_world_size(), dist.get_backend(), total.item()],
    "stdin": sys.stdin.read(),
}
Path(sys.argv[1], f"found{dist.get_rank()}").write_text(json.dumps(found))
dist.destroy_process_group()
