"""Papers on what is sent, how often, and how work is divided among ranks."""
