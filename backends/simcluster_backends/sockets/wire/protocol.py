"""The protocol version, alone, so that a machine can report it without other imports."""

PROTOCOL_VERSION = 11
"""The version, which rises with every change to the format of frames or messages.

2 added messages in parts and jobs with limits; 3 resumed connections, evaluations during the run
and readings of a node's machine; 4 shared memory; 5 the warnings of nodes; 6 the locations at which
a node waits, and its unread messages; 9 the tokens of answers as rows, and jobs without shortcuts;
10 the bytes on each of several routes.

Preamble and handshake have the same layout in every version, so that two versions can name each
other.
"""
