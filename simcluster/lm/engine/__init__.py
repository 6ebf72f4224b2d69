"""The engine: run batches of requests through a model that is spread over nodes."""
