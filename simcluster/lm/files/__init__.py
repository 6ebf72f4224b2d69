"""Files of models: their headers and pieces, read within limits. They may come from anywhere."""
