"""The load on a server: arrivals, lengths and traces of requests, and latencies of answers."""
