"""Time the transport of a backend of real nodes against torch.distributed's gloo, on this machine."""

from simcluster.bench.transport.run import bench_transport

__all__ = ["bench_transport"]
