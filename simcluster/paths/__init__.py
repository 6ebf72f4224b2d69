"""User-supplied paths, and safe access to files in untrusted directories."""
