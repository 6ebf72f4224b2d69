"""Replay the record of a real run in virtual time."""
