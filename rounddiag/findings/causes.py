"""The causes that a finding can name, or list as candidates: one row each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A cause of a mismatch.

    Attributes
    ----------
    decides: The record or the experiment that decides whether it is the cause.
    hypotheses: What `rounddiag.prove` tests it by; empty if it cannot.
    incidents: Public incidents with this cause; candidates are in this order.
    scopes: Where it can be, as in `Situation.scopes`. Empty if only values name it.
    one_of: Scopes of which there must be one, if any are named.
    at_start: Whether the first tokens of the samples must be affected, or must not be.
    is_partial: Whether it spares a part of each sample.
    with_images: Whether it needs an image in the context.
    is_rounding: Whether it only rounds, and moves no token by much.
    """

    meaning: str
    decides: str
    hypotheses: tuple[str, ...] = ()
    incidents: int = 0
    scopes: frozenset[str] = field(default_factory=frozenset)
    one_of: frozenset[str] = field(default_factory=frozenset)
    at_start: bool | None = None
    is_partial: bool = False
    with_images: bool = False
    is_rounding: bool = False

    @property
    def density(self) -> float:
        """Incidents for each kind of place that it can have."""
        return self.incidents / max(len(self.one_of or self.scopes), 1)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A cause that is possible at a place, and what would decide.

    Attributes
    ----------
    cause: A name of `CAUSES`.
    decides: The record or the experiment that would decide.
    hypotheses: What `rounddiag.prove` tests it by.
    incidents: Public incidents with this cause.
    """

    cause: str
    meaning: str
    decides: str
    hypotheses: tuple[str, ...] = ()
    incidents: int = 0

    def __str__(self) -> str:
        return self.cause


def _scopes(names: str) -> frozenset[str]:
    found = frozenset(names.split())
    # Any set of samples may be every n-th by chance.
    return found | {"nth"} if "some" in found else found


CAUSES: dict[str, Cause] = {
    # From ids, masks and values: facts and reversals name them.
    "filled_log_probs": Cause(
        meaning="a fixed value in place of log-probs",
        decides="Find where the column is padded or appended.",
        hypotheses=("filled_log_probs",),
        incidents=4,
    ),
    "impossible_log_probs": Cause(
        meaning="log-probs that no model gives: above 0, or not finite",
        decides="Find where the column is computed: no probability is above 1.",
    ),
    "shifted_log_probs": Cause(
        meaning="log-probs shifted against the tokens",
        decides="Compare the engine's own token ids with the saved ones: if they are"
        " equal, the log-probs are shifted.",
        hypotheses=("shifted_log_probs",),
        incidents=3,
    ),
    "swapped_rows": Cause(
        meaning="log-probs of another row",
        decides="Record the request id of each row.",
        hypotheses=("swapped_rows",),
        incidents=2,
    ),
    "constant_bias": Cause(
        meaning="a constant added to log-probs",
        decides="Look for a normaliser that one engine leaves out.",
    ),
    "padding_rows": Cause(
        meaning="padding rows or copies",
        decides="Drop rows that fill a batch before the loss and the metrics.",
        incidents=1,
    ),
    "mask_too_wide": Cause(
        meaning="a mask that covers tokens the model did not write",
        decides="Compare the mask with the template around each round.",
        incidents=2,
        scopes=_scopes("first last content"),
    ),
    "mask_offset": Cause(
        meaning="a mask that is moved against the generated tokens",
        decides="Compare the mask with the template around each round.",
    ),
    "mask_punched": Cause(
        meaning="holes that a rejection rule left in the mask",
        decides="Save the batch before the rejection.",
    ),
    # Wrong updates from sound log-probs.
    "lost_advantages": Cause(
        meaning="advantages that reach the last round only",
        decides="Broadcast the advantage of a trajectory to the tokens of all rounds.",
        incidents=1,
    ),
    "zero_advantages": Cause(
        meaning="advantages of 0 where rewards differ",
        decides="Compare the rewards that the estimator of advantages was given.",
        incidents=1,
    ),
    "lost_separators": Cause(
        meaning="turns without the separator of the template",
        decides="Append the ids that the template writes after the end of a turn.",
        incidents=1,
    ),
    "untrained_stops": Cause(
        meaning="ends of turns that no mask includes",
        decides="Put the end token that the model wrote into the mask of the loss.",
        incidents=1,
    ),
    "resumed_turns": Cause(
        meaning="parts of one turn that count as rounds",
        decides="Join the parts of an aborted turn.",
        incidents=1,
    ),
    "identical_log_probs": Cause(
        meaning="two bitwise equal columns",
        decides="Look for a bypass that sets old to rollout, and log both columns.",
        incidents=1,
    ),
    "retokenised": Cause(
        meaning="token ids that are not the sampled ones",
        decides="Compare the engine's own token ids, those of later prompts too, with"
        " the saved ones.",
        hypotheses=("retokenised",),
        incidents=7,
        scopes=_scopes("own some round step last content"),
    ),
    "image_expansion": Cause(
        meaning="image tokens counted differently by the engines",
        decides="Record the engine's prompt length and image tokens of each round.",
        hypotheses=("image_expansion",),
        incidents=3,
        scopes=_scopes("all some round step early first content"),
        with_images=True,
    ),
    "position_ids": Cause(
        meaning="different position ids",
        decides="Save the position ids of both engines.",
        hypotheses=("position_ids",),
        incidents=6,
        scopes=_scopes("own all some pack round step length early first"),
    ),
    # Sampling: of all tokens.
    "temperature": Cause(
        meaning="different temperatures",
        decides="Compare both temperatures, and vLLM's logprobs_mode (raw, processed).",
        hypotheses=("temperature",),
        incidents=7,
        at_start=True,
        scopes=_scopes("all"),
    ),
    "truncated_sampling": Cause(
        meaning="log-probs of a truncated distribution (top-p, top-k, min-p)",
        decides="Set top_p = 1 and top_k = -1, or take raw log-probs.",
        hypotheses=("truncated_sampling",),
        incidents=2,
        at_start=True,
        scopes=_scopes("all"),
    ),
    "logit_processor": Cause(
        meaning="a penalty on repeated tokens in one engine",
        decides="Look for repetition_penalty in generation_config.json.",
        hypotheses=("logit_processor",),
        incidents=2,
        scopes=_scopes("all content"),
    ),
    # Context and engines.
    "bad_worker": Cause(
        # Weights or an adapter that are others in some samples are those of a worker.
        meaning="one worker that differs from the others",
        decides="Record the rank and replica of each sample, and score its samples on"
        " another worker.",
        incidents=1,
        at_start=True,
        scopes=_scopes("some worker nth round step length early first last content"),
        one_of=_scopes("some worker"),
    ),
    "dropped_image": Cause(
        meaning="images that one engine did not see",
        decides="Score without images: if old does not change, it never saw them.",
        hypotheses=("dropped_image",),
        incidents=1,
        scopes=_scopes("own all some round step early first content"),
        with_images=True,
    ),
    "wrong_image": Cause(
        meaning="images of another sample",
        decides="Score some rows with their neighbours' images.",
        hypotheses=("wrong_image",),
        incidents=4,
        scopes=_scopes("own all some round step early first content"),
        with_images=True,
    ),
    "image_window": Cause(
        meaning="older images that one engine no longer sees",
        decides="Record the images that each engine saw in each round.",
        hypotheses=("image_window",),
        incidents=1,
        at_start=False,
        is_partial=True,
        scopes=_scopes("some round step content"),
        with_images=True,
    ),
    "context_masked": Cause(
        meaning="observations that one engine does not attend to",
        decides="Score one round with the tool results removed.",
        hypotheses=("context_masked",),
        incidents=1,
        at_start=False,
        is_partial=True,
        scopes=_scopes("some round first content"),
    ),
    "stale_cache": Cause(
        meaning="a cache filled by older weights",
        decides="Record cached tokens and cache resets of each round, or reset the"
        " caches and sample again.",
        hypotheses=("stale_cache",),
        incidents=7,
        scopes=_scopes("own all some worker version cached round step early first"),
    ),
    "decode_path": Cause(
        meaning="a sampler whose decoding differs from its prefill",
        decides="Score 16 of these rows with the sampler by prefill.",
        hypotheses=("decode_path",),
        incidents=2,
        scopes=_scopes("own all some round length"),
        one_of=_scopes("own all some length"),
    ),
    "packing_leak": Cause(
        meaning="rows of a pack that attend to each other",
        decides="Record the pack of each row, or score rows 0 to 7 alone and packed.",
        hypotheses=("packing_leak",),
        incidents=1,
        at_start=True,
        scopes=_scopes("some nth pack early"),
    ),
    "prompt_mismatch": Cause(
        meaning="different prompts in the two engines",
        decides="Compare the engine's prompt ids with the saved ones.",
        hypotheses=("prompt_mismatch",),
        incidents=1,
        at_start=True,
        scopes=_scopes("all some early"),
    ),
    "batch_shape": Cause(
        meaning="kernels that depend on the shape of the batch",
        decides="Score one row alone and in its micro-batch.",
        incidents=1,
        scopes=_scopes("all some worker"),
        is_rounding=True,
    ),
    "low_precision": Cause(
        meaning="log-probs or logits in a short dtype",
        decides="Score again with lm_head and log-softmax in float32.",
        hypotheses=("low_precision",),
        incidents=2,
        at_start=True,
        scopes=_scopes("all content"),
        is_rounding=True,
    ),
    "moe_routing": Cause(
        meaning="experts routed differently",
        decides="Record the routed experts of both engines.",
        hypotheses=("moe_routing",),
        incidents=2,
        at_start=True,
        scopes=_scopes("all content"),
    ),
    "model_mismatch": Cause(
        meaning="a model implemented differently",
        decides="Score 8 rows of step 0 with transformers in float32.",
        incidents=3,
        scopes=_scopes("all length last"),
    ),
    "lora_mismatch": Cause(
        meaning="an adapter applied differently",
        decides="Score with the adapter merged.",
        hypotheses=("lora_mismatch",),
        incidents=5,
        at_start=True,
        scopes=_scopes("all"),
    ),
    # Weights.
    "stale_weights": Cause(
        meaning="older weights in the sampler",
        decides="Compare step 0 with a later step, or score with the checkpoint of each"
        " version.",
        hypotheses=("stale_weights",),
        incidents=4,
        at_start=True,
        scopes=_scopes("all some worker version"),
    ),
    "mixed_weights": Cause(
        meaning="weights that changed while samples were written",
        decides="Record the weight version of each round or token.",
        hypotheses=("mixed_weights",),
        incidents=2,
        is_partial=True,
        scopes=_scopes("own some version step early"),
    ),
    "sync_broken": Cause(
        meaning="weights that did not arrive intact",
        decides="Compare a checksum of each layer after the sync.",
        incidents=4,
        at_start=True,
        scopes=_scopes("all"),
    ),
    # Which samples, not why.
    "truncated_round": Cause(
        meaning="samples cut off at the length limit",
        decides="Compare how each engine treats the tokens at the length limit.",
        scopes=_scopes("some last content"),
    ),
}

# Causes that a relation over all tokens shows.
FORMULAS = frozenset({"temperature", "truncated_sampling", "logit_processor"})
# What `rounddiag.prove` has hypotheses for.
PROVABLE = frozenset(name for one in CAUSES.values() for name in one.hypotheses)
# Where no cause is possible.
NEXT_STEP = "Score two of these samples again with one engine changed at a time."


def name_candidates(names: Iterable[str]) -> tuple[Candidate, ...]:
    """Return causes as candidates.

    Examples
    --------
    >>> name_candidates(["position_ids"])[0].decides
    'Save the position ids of both engines.'
    """
    return tuple(
        Candidate(
            cause=name,
            meaning=CAUSES[name].meaning,
            decides=CAUSES[name].decides,
            hypotheses=CAUSES[name].hypotheses,
            incidents=CAUSES[name].incidents,
        )
        for name in names
    )
