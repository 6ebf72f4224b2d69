"""Paths that users give, and files in folders that may come from elsewhere."""
