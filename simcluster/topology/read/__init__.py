"""Read a topology from its document, part by part."""
