"""Language models on several machines."""
