"""Records of the order of events in a real run, and their replay in the simulator.

order: the record, packed and read; notes: recording; run: the replay; whatif: the same work on another cluster.
"""
