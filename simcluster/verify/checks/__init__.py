"""The laws that algorithms are checked against, one per file. A check takes a `Subject` and yields table lines."""
