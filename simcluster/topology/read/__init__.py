"""Read a topology from YAML, part by part."""
