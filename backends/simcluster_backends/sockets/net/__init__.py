"""Connections, listeners, addresses, TLS and ssh."""
