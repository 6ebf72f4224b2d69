"""Inference: language models that answer, one request or many at once."""
