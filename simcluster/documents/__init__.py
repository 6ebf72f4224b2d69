"""Read user-written documents: YAML with line numbers, settings, user code."""
