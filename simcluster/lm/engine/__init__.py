"""The engine: batches of requests through a model that is spread over nodes."""
