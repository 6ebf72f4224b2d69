"""Watch a run in progress: its state, its stragglers, and a view in a terminal.

`telling` turns a backend's records into telemetry, and `watcher` collects it at a bounded cost.
`board` keeps it, `status` reports it as plain values, and `screen` draws these. Watching changes no
time, trace or weight of a run.
"""
