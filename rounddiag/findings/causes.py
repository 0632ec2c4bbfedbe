"""The causes that a finding can name, and what would tell them apart."""

from __future__ import annotations

from dataclasses import dataclass

from rounddiag.errors import warn_renamed

# What each cause means.
CAUSES: dict[str, str] = {
    # From ids, masks and values.
    "filled_log_probs": "a fixed value in place of log-probs",
    "shifted_log_probs": "log-probs shifted against the tokens",
    "swapped_rows": "log-probs of another row",
    "padding_rows": "padding rows or copies",
    "mask_too_wide": "a mask that covers tokens the model did not write",
    "mask_punched": "holes that a rejection rule left in the mask",
    "identical_log_probs": "two bitwise equal columns",
    "retokenised": "token ids that are not the sampled ones",
    "prompt_mismatch": "different prompts in the two engines",
    "image_expansion": "image tokens counted differently by the engines",
    "position_ids": "different position ids",
    # Sampling.
    "temperature": "different temperatures",
    "truncated_sampling": "log-probs of a truncated distribution (top-p, top-k)",
    "logit_processor": "a penalty on repeated tokens in one engine",
    # Context.
    "dropped_image": "images that one engine did not see",
    "wrong_image": "images of another sample",
    "image_window": "older images that one engine no longer sees",
    "context_masked": "observations that one engine does not attend to",
    # Engines.
    "stale_cache": "a cache filled by older weights",
    "decode_path": "a sampler whose decoding differs from its prefill",
    "packing_leak": "rows of a pack that attend to each other",
    "batch_shape": "kernels that depend on the shape of the batch",
    "low_precision": "log-probs or logits in a short dtype",
    "moe_routing": "experts routed differently",
    "model_mismatch": "a model implemented differently",
    "lora_mismatch": "an adapter applied differently",
    # Weights.
    "stale_weights": "older weights in the sampler",
    "mixed_weights": "weights that changed while samples were written",
    "sync_broken": "weights that did not arrive intact",
    # Places whose cause is not known.
    "bad_worker": "one worker that differs from the others",
    "truncated_round": "samples cut off at the length limit",
    "outlier_tokens": "single tokens far off",
    "unknown": "a cause that this list does not have",
}

# The family of each cause, for a sentence that cannot name one.
FAMILIES: dict[str, tuple[str, ...]] = {
    "values or rows in the wrong place": (
        *("filled_log_probs", "shifted_log_probs", "swapped_rows", "padding_rows"),
        *("identical_log_probs", "outlier_tokens", "truncated_round"),
    ),
    "the mask": ("mask_too_wide", "mask_punched"),
    "token ids": ("retokenised", "prompt_mismatch"),
    "sampling": ("temperature", "truncated_sampling", "logit_processor"),
    "lost context, images or positions": (
        *("dropped_image", "wrong_image", "image_window", "image_expansion"),
        *("position_ids", "context_masked"),
    ),
    "caches and packing": ("stale_cache", "decode_path", "packing_leak"),
    "numerics": ("batch_shape", "low_precision", "moe_routing"),
    "weights": (
        *("stale_weights", "mixed_weights", "sync_broken", "lora_mismatch"),
        "model_mismatch",
    ),
    "one worker": ("bad_worker",),
}


# Causes that `rounddiag.prove` has hypotheses for.
PROVABLE = frozenset(
    {"dropped_image", "wrong_image", "image_window", "position_ids", "context_masked"}
    | {"prompt_mismatch", "retokenised", "packing_leak", "decode_path"}
    | {"temperature", "truncated_sampling", "logit_processor", "stale_weights"}
    | {"mixed_weights", "stale_cache", "lora_mismatch", "moe_routing"}
    | {"image_expansion"}
    | {"shifted_log_probs", "swapped_rows", "filled_log_probs", "low_precision"}
)


def family(cause: str) -> str:
    """Return the family of a cause; `unknown` has none."""
    return next((name for name, causes in FAMILIES.items() if cause in causes), "")


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A cause that this batch cannot tell from the one of the finding.

    Attributes
    ----------
    cause : str
    how_to_tell : str
        The record or the experiment that would decide.
    """

    cause: str
    how_to_tell: str

    @property
    def would_tell(self) -> str:
        """`how_to_tell`, by its former name."""
        warn_renamed("Alternative.would_tell", "`how_to_tell`")
        return self.how_to_tell


# The record or the experiment that tells a cause from its alternatives.
_HOW_TO_TELL: dict[str, str] = {
    # From ids, masks and values.
    "shifted_log_probs": "Compare the engine's own token ids with the saved ones: if "
    "they are equal, the log-probs are shifted.",
    "swapped_rows": "Record the request id of each row.",
    "retokenised": "Compare the engine's own token ids, those of later prompts too, "
    "with the saved ones.",
    "prompt_mismatch": "Compare the engine's prompt ids with the saved ones.",
    "image_expansion": "Record the engine's prompt length and image tokens of each "
    "round.",
    "position_ids": "Save the position ids of both engines.",
    # Context.
    "dropped_image": "Score without images: if old does not change, it never saw them.",
    "wrong_image": "Score some rows with their neighbours' images.",
    "image_window": "Record the images that each engine saw in each round.",
    "context_masked": "Score one round with the tool results removed.",
    # Engines.
    "stale_cache": "Record cached tokens and cache resets of each round, or reset the "
    "caches and sample again.",
    "decode_path": "Score 16 of these rows with the sampler by prefill.",
    "packing_leak": "Record the pack of each row, or score rows 0 to 7 alone and "
    "packed.",
    "batch_shape": "Score one row alone and in its micro-batch.",
    "low_precision": "Score again with lm_head and log-softmax in float32.",
    "moe_routing": "Record the routed experts of both engines.",
    "model_mismatch": "Score 8 rows of step 0 with transformers in float32.",
    "lora_mismatch": "Score with the adapter merged.",
    # Weights.
    "stale_weights": "Compare step 0 with a later step, or score with the checkpoint "
    "of each version.",
    "mixed_weights": "Record the weight version of each round or token.",
    "sync_broken": "Compare a checksum of each layer after the sync.",
    # Places whose cause is not known.
    "truncated_round": "Compare how each engine treats the tokens at the length limit.",
    "bad_worker": "Record the rank and replica of each sample.",
    "outlier_tokens": "Replay the routed experts: outliers that remain have another "
    "cause.",
}


# Where no cause is likely.
_OPEN = "Score two of these samples again with one engine changed at a time."


def next_step(cause: str) -> str:
    """Return the record or the experiment that tells a cause from others.

    Examples
    --------
    >>> next_step("position_ids")
    'Save the position ids of both engines.'
    """
    return _HOW_TO_TELL.get(cause, _OPEN)


def list_alternatives(*causes: str) -> tuple[Alternative, ...]:
    """Return causes as alternatives, each with what would tell it from the others."""
    return tuple(
        Alternative(cause=cause, how_to_tell=_HOW_TO_TELL.get(cause, ""))
        for cause in causes
    )
