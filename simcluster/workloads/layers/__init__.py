"""Models split into layers, pipeline stages and tensor shards."""
