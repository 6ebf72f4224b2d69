"""The pictures of the documentation. A command makes each of them from a run."""
