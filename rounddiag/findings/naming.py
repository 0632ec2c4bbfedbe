"""Naming stub."""

from __future__ import annotations
import pandas as pd


def rank_causes(view, evidence):
    c = evidence.cause
    p = 0.5 if c == "unknown" else 0.8
    others = [o.cause for o in evidence.alternatives if o.cause != c]
    v = {c: p}
    for o in others:
        v[o] = (1 - p) / (len(others) + 1)
    v.setdefault("unknown", (1 - p) / (len(others) + 1))
    return pd.Series(v).sort_values(ascending=False, kind="stable")
