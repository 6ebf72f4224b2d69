"""Watching a run while it goes on: what is known of it, who holds it up, and a view of it in a terminal.

board, stragglers and status are pure; telling puts records into words; watcher takes them, screen draws them. Nothing
here may be seen by a run: it changes no time, no trace and no weight.
"""
