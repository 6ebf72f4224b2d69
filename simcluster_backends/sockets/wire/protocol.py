"""The protocol version. A separate module, so that a machine can report it before loading anything else."""

PROTOCOL_VERSION = 2
"""Raised with every change of a frame or a message between machines: 2 has messages in parts, jobs with limits.

Preamble and handshake keep their layout in every version, so that two versions can name each other.
"""
