"""Differences between runs: settings, results, and predicted against measured times."""
