"""Every rank holds a part of the model."""
