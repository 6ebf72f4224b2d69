"""Checkpoints: what each rank hands in at a step, stored so that an interruption at any point loses none.

tree: values and tensors; shard: one rank's part; keeper: at the node; gather: joins ranks; manifest, store: the
directory; restore: loading, also for another world size.
"""
