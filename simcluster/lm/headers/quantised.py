"""The bytes per weight that a config.json states, for models without tensors to sum."""

from __future__ import annotations

from typing import Any, Final

from simcluster.lm.headers.header import ModelFacts

DTYPES: Final = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
FOLDER: Final = "; or the folder with its .safetensors files, to sum their tensors"


def densities(facts: ModelFacts) -> dict[str, Any]:
    """Return the bytes per weight in layers, tables and experts, as arguments of a ModelShape.

    Raise ModelFileError if the config does not determine them.
    """
    key, kind = facts.first("dtype", "torch_dtype")
    plain = DTYPES.get(str(kind or "float32"))
    if plain is None:
        raise facts.wrong(key, kind, f"one of {', '.join(DTYPES)}{FOLDER}")
    key, found = facts.first("quantization", "quantization_config")
    if found is None:
        return {"weight_bytes": plain}
    if not isinstance(found, dict):
        raise facts.wrong(key, found, "a mapping")
    inner = ModelFacts(facts.file, found)
    if "quant_method" not in found:
        each = _mlx(inner, found, key)
        return {"weight_bytes": each, "table_bytes": each, "expert_bytes": each}
    method = str(found["quant_method"])
    if method == "mxfp4":  # only experts: 32 weights take 16 bytes and one for their scale
        return {"weight_bytes": plain, "table_bytes": plain, "expert_bytes": 17 / 32}
    each = _each(inner, found, method)
    return {"weight_bytes": each, "table_bytes": plain, "expert_bytes": each}


def _each(facts: ModelFacts, found: dict[str, Any], method: str) -> float:
    """Return the bytes per weight that is quantised by *method*, with the settings *found*.

    Raise ModelFileError if *method* is unknown or a setting is malformed.
    """
    if method in ("gptq", "awq"):
        bits = facts.count("bits", "w_bit", most=16)
        group = found.get("group_size", found.get("q_group_size", 128))
        if type(group) is not int or group < 1:
            return bits / 8  # one scale per column, which is negligible
        return bits / 8 + (2 + bits / 8) / group  # a group has an f16 scale and a zero point
    if method in ("fp8", "fbgemm_fp8"):
        return 1.0
    if method == "bitsandbytes":
        if facts.flag("load_in_8bit", "_load_in_8bit"):
            return 1.0
        # 64 weights share an f32 scale, or a one-byte scale if 256 scales share an f32 one.
        double = facts.flag("bnb_4bit_use_double_quant")
        return 0.5 + (1 / 64 + 4 / 64 / 256 if double else 4 / 64)
    raise facts.wrong("quant_method", method, f"gptq, awq, fp8, mxfp4 or bitsandbytes{FOLDER}")


def _mlx(facts: ModelFacts, found: dict[str, Any], key: str) -> float:
    """Return the bytes per weight that is quantised by MLX.

    Each group of weights has a scale and, for integers, a minimum.
    """
    bits = facts.count("bits", most=16)
    group = facts.count("group_size", default=64)
    others = [name for name, own in found.items() if isinstance(own, dict) and own.get("bits", bits) != bits]
    if others and not all(name.endswith("gate") for name in others):
        raise facts.wrong(key, f"other bits for {others[0]}", f"one number of bits for all layers{FOLDER}")
    return bits / 8 + (1 if str(found.get("mode", "affine")).startswith("mx") else 4) / group
