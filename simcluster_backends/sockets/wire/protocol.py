"""Which protocol is spoken here. On its own, so that a machine can say so before it has loaded anything else."""

PROTOCOL_VERSION = 2
"""Raised with every change of a frame or of a message between machines: 2 has messages in parts, jobs with limits.

Preamble and handshake keep their layout in every version, so that two versions can name each other.
"""
