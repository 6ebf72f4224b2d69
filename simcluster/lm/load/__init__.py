"""The load of a server: arrivals, lengths, traces, and the latencies of the answers."""
