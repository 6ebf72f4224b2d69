"""The protocol version. A separate module, so that a machine can report it before loading anything else."""

PROTOCOL_VERSION = 8
"""Raised with every change of a frame or a message between machines: 2 has messages in parts, jobs with limits; 3
resumes broken connections, has evaluations during the run, and readings of a node's machine; 4 shares
memory; 5 has the warnings of nodes; 6 where a node waits, and what lies unread there.

Preamble and handshake keep their layout in every version, so that two versions can name each other.
"""
