"""Ranks average with their neighbours in an overlay."""
