"""Draws what a run leaves behind: figures, tables, HTML pages and sentences."""
