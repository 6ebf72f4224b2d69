"""Read headers and parts of model files, within limits, because a file may come from anywhere."""
