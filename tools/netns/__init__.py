"""A private network: hosts in network namespaces, joined by shaped links.

Tests run on it, and so do the measurements of docs/fidelity.md.
"""
