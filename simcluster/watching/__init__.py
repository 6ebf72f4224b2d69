"""Watch a run in progress: its state, its stragglers, and a view in a terminal.

board and status are pure; telling turns records into telemetry; watcher takes it, and screen draws it. A
run cannot observe any of this: watching changes no time, trace or weight.
"""
