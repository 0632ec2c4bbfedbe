"""Weights in 8 bits; experts chosen otherwise: settings of a model in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rounddiag.proof.hypotheses.hypothesis import Edit, register
from rounddiag.proof.trajectory import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.proof.trajectory import Samples, Trajectory


def _set(setting: str) -> Edit:
    def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
        del samples
        return [replace(Request.of_sample(one), setting=setting)]

    return edit


for _name, _says in (
    ("fp8_by_row", "weights in 8-bit floats by output, inputs by token"),
    ("fp8_by_tensor", "weights and inputs in 8-bit floats by tensor"),
    ("fp8_weights", "weights in 8-bit floats by output, inputs as they are"),
    ("int8_by_row", "weights in 8-bit integers by output, inputs by token"),
):
    register(_name, cause="low_precision", says=_says, needs=("weights",))(_set(_name))
for _name, _says in (
    ("one_expert_fewer", "one expert fewer for each token"),
    ("one_expert_more", "one expert more for each token"),
    ("experts_not_normalised", "weights of experts normalised the other way"),
    ("router_bfloat16", "routers in bfloat16"),
):
    register(_name, cause="moe_routing", says=_says, needs=("experts",))(_set(_name))
