"""The README's picture: a shelf of hosts, its predicted loss curves, and the measured ones."""
