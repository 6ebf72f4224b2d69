"""Own code from memory: a function of a notebook cell, the prompt or the main script as source that every node reads.

The user's text is copied, with the names that it uses: imports, functions, classes, constants, tensors. Nothing is
pickled; what has no source is an error that names it.
"""

from simcluster.documents.captured.capture import capture, capture_value, unwrapped
from simcluster.documents.captured.source import SourceModule, held

__all__ = ["SourceModule", "capture", "capture_value", "held", "unwrapped"]
