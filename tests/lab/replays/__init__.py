"""Replays of real runs, many in a row: `make replay`. tests/lab/replays/test_replay.py has one of each."""
