"""What is right: the cause of each fault, and which causes one batch cannot tell apart.

The reasons are those of issue 12 and of what was tried before: the same values in every
array that is saved, whatever the analysis.
"""

from __future__ import annotations

from dataclasses import dataclass

CAUSES = {
    "stale_weights": "stale_weights",
    "mixed_weights": "mixed_weights",
    "sync_broken": "sync_broken",
    "sync_permuted": "sync_broken",
    "lora_mismatch": "lora_mismatch",
    "rope_base": "model_mismatch",
    "other_activation": "model_mismatch",
    "router_noise": "moe_routing",
    "coarse_body": "low_precision",
    "bfloat16_head": "low_precision",
    "bfloat16_logits": "low_precision",
    "temperature": "temperature",
    "drawn_tempered": "temperature",
    "top_p": "truncated_sampling",
    "top_k": "truncated_sampling",
    "penalty": "logit_processor",
    "stale_prefix": "stale_cache",
    "stale_in_flight": "stale_cache",
    "stale_vision": "stale_cache",
    "decode_path": "decode_path",
    "batch_shape": "batch_shape",
    "begins_twice": "prompt_mismatch",
    "without_task": "prompt_mismatch",
    "observations_masked": "context_masked",
    "thoughts_stripped": "retokenised",
    "lost_newlines": "retokenised",
    "blank_pictures": "dropped_image",
    "first_picture_lost": "dropped_image",
    "window_1": "image_window",
    "window_2": "image_window",
    "wrong_pictures": "wrong_image",
    "expanded_twice": "image_expansion",
    "plain_places": "position_ids",
    "response_offset": "position_ids",
    "half_places": "position_ids",
    "packing_leak": "packing_leak",
}
"""The cause of each fault of a pass; `arrays.FAULTS` has the rest."""


@dataclass(frozen=True)
class Alike:
    """Causes that one batch cannot tell apart, why, and the record that would tell.

    `unless` names columns that settle it; `fault` limits the pair to one kind of fault.
    """

    causes: frozenset[str]
    because: str
    unless: frozenset[str] = frozenset()
    faults: frozenset[str] = frozenset()


def _alike(
    *causes: str,
    because: str,
    unless: tuple[str, ...] = (),
    faults: tuple[str, ...] = (),
) -> Alike:
    return Alike(frozenset(causes), because, frozenset(unless), frozenset(faults))


ALIKE = [
    _alike(
        "stale_weights", "sync_broken", "lora_mismatch",
        because="other weights at every token of every row; only the size differs, and"
        " a second step or a checksum would tell",
    ),
    _alike(
        "model_mismatch", "stale_weights", "sync_broken", "lora_mismatch",
        because="a layer that computes otherwise is a layer with other weights; step 0"
        " would tell",
    ),
    _alike(
        "model_mismatch", "position_ids",
        because="another RoPE base is another position of every token",
        unless=("places",),
        faults=("rope_base", "half_places", "response_offset", "plain_places"),
    ),
    _alike(
        "mixed_weights", "stale_cache",
        because="both begin or end at one decoding step; the version of each token and"
        " the cache's resets would tell",
        faults=("mixed_weights", "stale_in_flight"),
    ),
    _alike(
        "stale_cache", "stale_weights", "prompt_mismatch",
        because="an old prefix fades slowly from the prompt on; cached tokens a round"
        " would tell",
        faults=("stale_prefix", "stale_in_flight", "begins_twice", "without_task"),
    ),
    _alike(
        "image_window", "context_masked",
        because="healthy up to a round, and nothing in the file says that there were"
        " pictures",
        unless=("images",),
        faults=("window_2",),
    ),
    _alike(
        "stale_cache", "dropped_image", "wrong_image",
        because="single pictures are off, each seen once; their hashes would tell",
        faults=("stale_vision", "wrong_pictures", "blank_pictures"),
    ),
    _alike(
        "stale_cache", "stale_weights", "sync_broken",
        because="features of an older encoder are older weights for every token after a"
        " picture, and every row begins with one; image hashes with the encoder's"
        " version, or rows without pictures, would tell",
        faults=("stale_vision",),
    ),
    _alike(
        "image_window", "dropped_image", "context_masked",
        because="round 0 healthy and all later ones off: window of one picture, all"
        " later pictures lost, or whole observations masked; the pictures that each"
        " engine saw would tell",
        faults=("window_1", "observations_masked"),
    ),
    _alike(
        "dropped_image", "position_ids", "image_expansion", "prompt_mismatch",
        because="off from the first token on, fading or not: the first picture, its"
        " tokens or their positions; grids and position ids would tell",
        unless=("places",),
        faults=(
            "blank_pictures", "first_picture_lost", "plain_places", "response_offset",
            "expanded_twice",
        ),
    ),
    _alike(
        "dropped_image", "image_expansion", "position_ids",
        "stale_weights", "sync_broken", "model_mismatch",
        because="every row has a picture in its prompt, so every token of every row is"
        " off, as with other weights; rows without pictures would tell",
        unless=("places",),
        faults=("blank_pictures", "expanded_twice", "plain_places"),
    ),
    _alike(
        "context_masked", "retokenised",
        because="rounds after the first read another history; the ids that the sampler"
        " read would tell",
        faults=("observations_masked", "thoughts_stripped", "lost_newlines"),
    ),
    _alike(
        "low_precision", "stale_weights", "sync_broken", "lora_mismatch",
        "model_mismatch",
        because="a float32 log-softmax hides the grid of a coarser head or body; a"
        " second pass in float32 would tell",
        faults=("bfloat16_logits", "coarse_body"),
    ),
    _alike(
        "moe_routing", "low_precision",
        because="a short tail at little more than the noise; the experts of both"
        " engines would tell",
        faults=("router_noise",),
    ),
    _alike(
        "moe_routing", "outlier_tokens",
        because="single tokens are far off; the experts of both engines would tell",
    ),
    _alike(
        "decode_path", "mixed_weights", "bad_worker",
        because="some rows are off from one token on; a prefill by the sampler would"
        " tell",
        faults=("decode_path",),
    ),
    _alike(
        "bad_worker", "decode_path", "packing_leak",
        because="some rows are off and nothing says who computed them; a rank or a"
        " pack of each row would tell",
        unless=("ranks",),
        faults=("bad_worker", "packing_leak"),
    ),
]  # fmt: skip

NOISE_LIKE = frozenset(
    {
        "stale_weights", "sync_broken", "lora_mismatch", "model_mismatch",
        "low_precision", "moe_routing", "batch_shape", "stale_cache",
    }
)  # fmt: skip
"""Causes that look like noise of a higher level at `just_visible`: without a batch
known to be healthy its level is not known, and to find nothing is right as well."""


def alike(cause: str, other: str, fault: str, columns: frozenset[str]) -> bool:
    """Tell whether a batch with these columns leaves both causes open."""
    return any(
        {cause, other} <= one.causes
        and not (one.unless & columns)
        and (not one.faults or fault in one.faults)
        for one in ALIKE
    )
