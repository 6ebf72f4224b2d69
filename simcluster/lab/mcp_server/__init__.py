"""Tools of the Model Context Protocol: check, estimate, run, compare and explain, for a program that asks."""
