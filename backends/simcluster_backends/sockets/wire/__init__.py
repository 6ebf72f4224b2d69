"""Frames, handshakes and control messages, without sockets."""
