"""The README's picture: a shelf of hosts, with predicted and measured loss curves."""
