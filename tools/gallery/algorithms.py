"""The scenes of the algorithms' pictures: the steps to draw, and settings that show the idea."""

from __future__ import annotations

from tools.gallery.steps import EXPERTS, LAYERS, Scene

SCENES = (
    Scene("all_reduce_dp", 3, 5),
    Scene("one_bit_adam", 5, 7, {"warmup": 3}),
    Scene("zero", 3, 4, {"stage": 3}),
    Scene("sync_ps"),
    Scene("k_sync", 3, 5, {"k": 3}),
    Scene("ssp", 3, 5, {"staleness": 1}),
    Scene("softsync", 3, 5, {"n": 2}),
    Scene("k_async", 3, 5, {"k": 2}),
    Scene("edp", 3, 5),
    Scene("local_sgd", 4, 12, {"interval": 4}),
    Scene("diloco", 4, 12, {"interval": 4}),
    Scene("streaming_diloco", 8, 16, {"interval": 8, "fragments": 4}),
    Scene("async_diloco", 8, 16, {"interval": 4}),
    Scene("fedbuff", 8, 16, {"interval": 4}),
    Scene("easgd", 8, 16, {"interval": 4}),
    Scene("sparta", 3, 5),
    Scene("demo", 3, 5),
    Scene("d_psgd", 3, 5),
    Scene("ad_psgd", 3, 6),
    Scene("sgp", 3, 5),
    Scene("gradient_tracking", 3, 5),
    Scene("choco_sgd", 3, 5, {"compression": "top_k"}),
    Scene("pipeline", 3, 4, {"micro_batches": 4}, LAYERS),
    Scene("tensor_parallel", 3, 4, {}, LAYERS | {"layers": 1}),
    Scene("expert_parallel", 3, 4, {}, EXPERTS),
)
