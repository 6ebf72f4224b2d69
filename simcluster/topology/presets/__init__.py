"""Devices and links that have a name, and generators of common shapes."""
