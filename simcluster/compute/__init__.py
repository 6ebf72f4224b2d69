"""Nodes that compute on an accelerator: its choice, copies to and from it, and a transport that makes them."""

from simcluster.compute.copies import HostCopies, is_on_host, moved, to_host
from simcluster.compute.node import DeviceTransport, carries, host_side
from simcluster.compute.place import HOST, device_of, name_of, synchronise
from simcluster.compute.running import StatisticsExchange, Travel, exchange_of, unaccompanied

__all__ = [
    "HOST",
    "DeviceTransport",
    "HostCopies",
    "StatisticsExchange",
    "Travel",
    "carries",
    "device_of",
    "exchange_of",
    "host_side",
    "is_on_host",
    "moved",
    "name_of",
    "synchronise",
    "to_host",
    "unaccompanied",
]
