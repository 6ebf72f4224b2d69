"""Which protocol is spoken here. On its own, so that a machine can say so before it has loaded anything else."""

PROTOCOL_VERSION = 1
"""Preamble and handshake keep their layout in every version, so that two versions can name each other."""
