"""Checkpoints: each rank hands in its state at certain steps, and the states are stored so that no
interruption can destroy a complete checkpoint.

`tree` encodes values and tensors, `shard` holds one rank's part, `keeper` captures a node's state,
and `gather` joins the ranks' parts. `manifest` and `store` define the directory of checkpoints.
`restore` loads a checkpoint, for the same or a different world size.
"""
