"""Draw a topology, and describe it in words."""
