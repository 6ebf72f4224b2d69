"""Headers of models, read by one reader for all commands: sizes, formats, and where the tensors are. None is loaded."""
