"""Sections of report.html: the timeline of any window, and summaries of many nodes."""
