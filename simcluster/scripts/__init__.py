"""Unmodified torch.distributed programs, run in the cluster's time.

`node_program.py` is the place to start reading: it turns the messages of a rank's process into
calls on the cluster. `messages.py` defines these messages, `arena.py` holds the tensors, and
`group_calls.py` makes the collective calls. If gloo makes the calls, `gloo_program.py` replaces
`node_program.py`. `run_script.py` is the algorithm: it starts a rank (`rank_process.py`), and
handles its output (`printed_lines.py`) and its metrics (`metrics_log.py`). `rank/` has the code in
the script's process: `rank/main.py` starts the script, and `rank/process_group.py` is its process
group.
"""
