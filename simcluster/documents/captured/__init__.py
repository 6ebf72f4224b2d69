"""Turn a function from a notebook cell, the prompt or the main script into source for every node.

The function's text is copied, together with the imports, functions, classes, constants and tensors
that it uses. Nothing is pickled; an object without source raises an error that names the object.
"""

from simcluster.documents.captured.capture import capture, capture_value, unwrapped
from simcluster.documents.captured.source import SourceModule, held

__all__ = ["SourceModule", "capture", "capture_value", "held", "unwrapped"]
