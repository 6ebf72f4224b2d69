"""The pictures of the documentation, each made by a command from a run."""
