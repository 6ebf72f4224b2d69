"""Tools for agents by the Model Context Protocol: check, estimate, run, compare and explain."""
