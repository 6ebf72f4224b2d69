"""`simcluster doctor`: ask every machine of a topology whether a run could start there, and say what to do if not."""

from simcluster_backends.sockets.doctor.rows import DoctorRow, doctor

__all__ = ["DoctorRow", "doctor"]
