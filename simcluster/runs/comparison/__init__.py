"""Compare runs: their settings, their results, and predicted with measured times."""
