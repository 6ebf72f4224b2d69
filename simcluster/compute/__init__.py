"""Nodes that compute on an accelerator: its choice, copies to and from it, and a transport that makes them."""

from simcluster.compute.copies import Leaving, is_on_host, moved, to_host
from simcluster.compute.node import OnDevice, host_side
from simcluster.compute.place import HOST, device_of, name_of, synchronise

__all__ = [
    "HOST",
    "Leaving",
    "OnDevice",
    "device_of",
    "host_side",
    "is_on_host",
    "moved",
    "name_of",
    "synchronise",
    "to_host",
]
