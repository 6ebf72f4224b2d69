"""Models cut into layers: pipeline stages and tensor shards."""
