"""Serving, predicted and measured: real nodes, shaped links, and pauses as accelerators."""
