"""torch.distributed programs as they are, in the cluster's time.

Start with `node_program.py`: messages of a rank's process become calls on the cluster. `messages.py` defines them,
`arena.py` holds the tensors, `group_calls.py` the collectives. `gloo_program.py` takes the place of `node_program.py`
where gloo makes the calls. `run_script.py` is the algorithm: it starts a rank (`rank_process.py`) with its output
(`printed_lines.py`) and its log (`metrics_log.py`). `rank/` is the other side, in the process of the script:
`rank/main.py` starts it, `rank/process_group.py` is its process group.
"""
