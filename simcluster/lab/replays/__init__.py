"""Records of the order of events in a real run, and their replay in the simulator."""
