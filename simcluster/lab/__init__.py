"""The lab: experiments on experiments.

It builds on the core; only `verify` imports language models.

Start with `sweeps/run.py`, which runs one experiment many times, or `reports/report.py`, which
draws a run. Go deeper when a question is about many runs (`what_if`, `explain`), a real cluster
(`calibrate`, `replays`), or a promise (`verify`, `bench`). `ui` and `mcp_server` offer the same to
a browser and to an agent. `tracking` exports runs to other tools.
"""
