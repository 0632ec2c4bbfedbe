"""What an engine computes otherwise of the same ids: settings of a pass."""

from __future__ import annotations

from dataclasses import replace

from rounddiag.proof.hypotheses.hypothesis import Edit, register_hypothesis
from rounddiag.proof.trajectory import Request, Samples, Trajectory


def _set(setting: str) -> Edit:
    return lambda trajectory, _: replace(Request.of_sample(trajectory), setting=setting)


for _name, _says in (
    ("fp8_by_row", "weights in 8-bit floats by output, inputs by token"),
    ("fp8_by_tensor", "weights and inputs in 8-bit floats by tensor"),
    ("fp8_weights", "weights in 8-bit floats by output, inputs as they are"),
    ("int8_by_row", "weights in 8-bit integers by output, inputs by token"),
):
    register_hypothesis(_name, _says, cause="low_precision", needs=("weights",))(
        _set(_name)
    )
for _name, _says in (
    ("one_expert_fewer", "one expert fewer for each token"),
    ("one_expert_more", "one expert more for each token"),
    ("experts_not_normalised", "weights of experts normalised the other way"),
    ("router_bfloat16", "routers in bfloat16"),
):
    register_hypothesis(_name, _says, cause="moe_routing", needs=("experts",))(
        _set(_name)
    )
register_hypothesis(
    "rotary_bfloat16",
    "rotary frequencies rounded to bfloat16",
    cause="position_ids",
    needs=("rotary",),
)(_set("rotary_bfloat16"))


@register_hypothesis(
    "decoded",
    "decoding, which differs from the same engine's prefill",
    cause="decode_path",
    needs=("decoding",),
)
def _decode(trajectory: Trajectory, samples: Samples) -> list[Request]:
    base = replace(Request.of_sample(trajectory), setting="decoded")
    return [
        base.before(trajectory, stop).score_only(start, stop)
        for start, stop in trajectory.rounds
    ]
