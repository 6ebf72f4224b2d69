"""`simcluster doctor`: ask every machine of a topology whether a run could start there, and say what to do if not."""

from simcluster_backends.sockets.doctor.rows import Row, doctor

__all__ = ["Row", "doctor"]
