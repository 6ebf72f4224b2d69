"""What a real run notes about the order in which things happened, and the simulator made to repeat it.

order: the record, packed and read; notes: how it is kept while a run goes on; replay: the command; whatif: the same
work on another cluster.
"""
