"""Headers of models, read by the same code for all commands: sizes, formats, tensor offsets."""
