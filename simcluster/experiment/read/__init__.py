"""Read an experiment from its file, and check it."""
