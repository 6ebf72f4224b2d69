"""A slow decoder in numpy, float64 and loops over positions and heads: the independent reference."""

from __future__ import annotations

from math import erf

import numpy as np


def logits(architecture, tensors, tokens):
    """Return the logits (n, vocabulary) of *tokens*, without a cache; *tensors* by (name, layer)."""
    a = architecture
    get = {key: tensor.double().numpy() for key, tensor in tensors.items()}
    llama = a.rope_base is not None

    def norm(x, weight):
        if not llama:
            x = x - x.mean()
        return x / np.sqrt((x * x).mean() + a.epsilon) * weight

    def rotate(vector, position):
        out = vector.copy()
        for i in range(a.head_width // 2):
            p, q = (2 * i, 2 * i + 1) if a.pairs == "interleaved" else (i, i + a.head_width // 2)
            turn = (vector[p] + 1j * vector[q]) * np.exp(1j * position * a.rope_base ** (-2 * i / a.head_width))
            out[p], out[q] = turn.real, turn.imag
        return out

    streams = [get["embedding", None][t] + (0 if llama else get["position", None][i]) for i, t in enumerate(tokens)]
    for layer in range(a.layers):
        keys, values, after = [], [], []
        for position, stream in enumerate(streams):
            x = norm(stream, get["norm_attention", layer])
            q, k, v = ((get[name, layer] @ x).reshape(-1, a.head_width).copy() for name in ("query", "key", "value"))
            if llama:
                q, k = [rotate(h, position) for h in q], [rotate(h, position) for h in k]
            keys.append(k)
            values.append(v)
            mixed = []
            for head in range(a.heads):
                group = head // (a.heads // a.kv_heads)
                scores = np.array([q[head] @ key[group] for key in keys]) / np.sqrt(a.head_width)
                part = np.exp(scores - scores.max())
                mixed.append(sum(p * value[group] for p, value in zip(part / part.sum(), values, strict=True)))
            stream = stream + get["merge", layer] @ np.concatenate(mixed)
            x = norm(stream, get["norm_feed", layer])
            inner = get["up", layer] @ x
            if a.gated:
                gate = get["gate", layer] @ x
                inner = gate / (1 + np.exp(-gate)) * inner
            else:
                inner = np.array([0.5 * z * (1 + erf(z / np.sqrt(2))) for z in inner])
            after.append(stream + get["down", layer] @ inner)
        streams = after
    head = get["embedding", None] if a.tied else get["output", None]
    return np.array([head @ norm(stream, get["norm", None]) for stream in streams])
