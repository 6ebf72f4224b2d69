"""Draws a topology and states its facts."""
