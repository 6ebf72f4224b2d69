"""Inference: a model whose layers are shared between nodes."""
