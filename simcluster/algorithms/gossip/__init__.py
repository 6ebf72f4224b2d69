"""Nodes average with their neighbours in an overlay."""
