"""The parts of `python -m tools.accelerators`. Each runs in a separate process."""
