"""`simcluster doctor`: check whether a run could start on every machine, and name remedies."""

from simcluster_backends.sockets.doctor.rows import DoctorRow, doctor

__all__ = ["DoctorRow", "doctor"]
