"""Papers on averaging with neighbours instead of with all."""
