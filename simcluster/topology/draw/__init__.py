"""Drawings of a topology, and its facts in words."""
