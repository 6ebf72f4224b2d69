"""Notebooks: made from notebooks/*.py with their outputs, compared with a second execution, their answers checked."""
