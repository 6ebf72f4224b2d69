"""Hosts in network namespaces, joined by shaped links: a real network of one's own, for tests and docs/fidelity.md."""
