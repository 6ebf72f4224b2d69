"""One node's process: its transport, its connections to peers, its lane to the launcher."""
