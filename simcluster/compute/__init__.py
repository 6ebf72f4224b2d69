"""Support for nodes that compute on an accelerator: the choice of a device, copies between device
and host, and a transport that makes these copies.
"""

from simcluster.compute.host_copies import HostCopies, is_on_host, moved, to_host
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
