"""The causes that a finding can name, one row each, and their families."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rounddiag.findings.measure import Measure

# In the order in which `rounddiag.prove` tests them.
FAMILIES = {
    "ids": "ids and template",
    "context": "context and images",
    "positions": "positions",
    "weights": "weights",
    "numerics": "numerics and kernels",
    "sampling": "sampler's settings",
    "mask": "mask",
    "worker": "one worker",
}


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A cause of a mismatch.

    Attributes
    ----------
    family: A name of `FAMILIES`; empty if only values, ids
        or masks name it.
    test: The record or the experiment that tests it.
    hypotheses: What `rounddiag.prove` tests it by; empty if it cannot.
    with_image: Whether it needs an image in the context.
    not_at: Kinds of place that it does not make: see `families`.
    """

    meaning: str
    test: str
    family: str = ""
    hypotheses: tuple[str, ...] = ()
    with_image: bool = False
    not_at: frozenset[str] = frozenset()


# Causes that begin with the first token of a sample, or that spare it; that touch only
# some rounds or samples; that touch all tokens of a sample; and that rounding makes.
_FROM_START = frozenset({"later", "within", "position"})
_LATER = frozenset({"all", "early", "content"})
_OF_SOME = frozenset({"all", "content"})
_OF_ALL = frozenset({"early"})
_ROUNDING = frozenset({"large"})

NO_CAUSE = "unknown"  # the cause of what no fact and no reversal explains
CAUSES: dict[str, Cause] = {
    # From ids, masks and values: facts and reversals name them.
    "filled_log_probs": Cause(
        meaning="one value in place of log-probs, such as 0 or NaN",
        test="Find where the column is padded or appended.",
        hypotheses=("filled_log_probs",),
    ),
    "impossible_log_probs": Cause(
        meaning="log-probs that no model gives: above 0, or not finite",
        test="Find where the column is computed: no probability is above 1.",
    ),
    "shifted_log_probs": Cause(
        meaning="log-probs shifted against the tokens",
        test="Compare the engine's own token ids with the saved ones: if they are"
        " equal, the log-probs are shifted.",
        hypotheses=("shifted_log_probs",),
    ),
    "swapped_rows": Cause(
        meaning="log-probs of another row",
        test="Record the request id of each row.",
        hypotheses=("swapped_rows",),
    ),
    "another_token": Cause(
        meaning="log-probs of the likeliest token in place of the sampled one",
        test="Look the sampled ids up in the engine's log-probs of each place.",
    ),
    "copied_log_probs": Cause(
        meaning="log-probs that are copies of those of other tokens, such as another"
        " request's",
        test="Compare the offsets of each request in the engine's flat log-probs.",
    ),
    "constant_bias": Cause(
        meaning="a constant added to log-probs",
        test="Look for a normaliser that one engine leaves out.",
    ),
    "padding_rows": Cause(
        meaning="padding rows or copies",
        test="Drop rows that fill a batch before the loss and the metrics.",
    ),
    "mask_too_wide": Cause(
        family="mask",
        meaning="a mask that covers tokens the model did not write",
        test="Compare the mask with the template around each round.",
    ),
    "mask_offset": Cause(
        family="mask",
        meaning="a mask that is moved against the generated tokens",
        test="Compare the mask with the template around each round.",
    ),
    "mask_punched": Cause(
        family="mask",
        meaning="holes that a rejection rule left in the mask",
        test="Save the batch before the rejection.",
    ),
    # Wrong updates from sound log-probs.
    "lost_advantages": Cause(
        meaning="advantages that reach the last round only",
        test="Broadcast the advantage of a trajectory to the tokens of all rounds.",
    ),
    "zero_advantages": Cause(
        meaning="advantages of 0 where rewards differ",
        test="Compare the rewards that the estimator of advantages was given.",
    ),
    "outlier_advantages": Cause(
        meaning="an advantage that outweighs all others",
        test="Compare the standard deviation that its rewards were divided by.",
    ),
    "split_groups": Cause(
        meaning="samples of one prompt in groups of one",
        test="Compare the groups that the estimator of advantages was given.",
    ),
    "slipped_advantages": Cause(
        meaning="advantages normalised again, or over rows",
        test="Read in the trainer's settings whether they were to be normalised so.",
    ),
    "frozen_weights": Cause(
        meaning="an update that leaves the weights as they are",
        test="Look at the learning rate and the parameters of the optimizer.",
    ),
    "lost_separators": Cause(
        meaning="turns without the separator of the template",
        test="Append the ids that the template writes after the end of a turn.",
    ),
    "untrained_stops": Cause(
        meaning="ends of turns that no mask includes",
        test="Put the end token that the model wrote into the mask of the loss.",
    ),
    "resumed_turns": Cause(
        meaning="parts of one turn that count as rounds",
        test="Join the parts of an aborted turn.",
    ),
    "identical_log_probs": Cause(
        meaning="two bitwise equal columns",
        test="Look for a bypass that sets old to rollout, and log both columns.",
    ),
    "retokenised": Cause(
        family="ids",
        meaning="token ids that are not the sampled ones",
        test="Compare the engine's own token ids, those of later prompts too, with"
        " the saved ones.",
        hypotheses=("retokenised",),
    ),
    "image_expansion": Cause(
        family="context",
        meaning="image tokens counted differently by the engines",
        test="Record the engine's prompt length and image tokens of each round.",
        hypotheses=("image_expansion",),
        with_image=True,
    ),
    "position_ids": Cause(
        family="positions",
        meaning="different position ids",
        test="Save the position ids of both engines.",
        hypotheses=("position_ids",),
    ),
    # Sampling: of all tokens.
    "temperature": Cause(
        family="sampling",
        meaning="different temperatures",
        test="Compare both temperatures, and vLLM's logprobs_mode (raw, processed).",
        hypotheses=("temperature",),
    ),
    "structured_output": Cause(
        family="sampling",
        meaning="log-probs over what a grammar allows (structured output)",
        test="Record the grammar, `choice` or schema of the requests in `sampling`, or"
        " sample without it.",
        hypotheses=("structured_output",),
    ),
    "truncated_sampling": Cause(
        family="sampling",
        meaning="log-probs of a truncated distribution (top-p, top-k, min-p)",
        test="Set top_p = 1 and top_k = -1, or take raw log-probs.",
        hypotheses=("truncated_sampling",),
    ),
    "logit_processor": Cause(
        family="sampling",
        meaning="a penalty on repeated tokens in one engine",
        test="Look for repetition_penalty in generation_config.json.",
        hypotheses=("logit_processor",),
    ),
    # Context and engines.
    "bad_worker": Cause(
        family="worker",
        # Weights or an adapter that are others in some samples are those of a worker.
        meaning="one worker that differs from the others",
        test="Record the rank and replica of each sample, and score its samples on"
        " another worker.",
    ),
    "dropped_image": Cause(
        family="context",
        meaning="images that one engine did not see",
        test="Score without images: if old does not change, it never saw them.",
        hypotheses=("dropped_image",),
        with_image=True,
    ),
    "wrong_image": Cause(
        family="context",
        meaning="images of another sample, or of an earlier round",
        test="Score some rows with their neighbours' images.",
        hypotheses=("wrong_image",),
        with_image=True,
    ),
    "image_window": Cause(
        family="context",
        meaning="older images that one engine no longer sees",
        test="Record the images that each engine saw in each round.",
        hypotheses=("image_window",),
        with_image=True,
        not_at=_LATER,
    ),
    "rewritten_history": Cause(
        family="context",
        meaning="a history that one engine rewrote and the other did not",
        test="Record the prompt ids of each round that the sampler read.",
        hypotheses=("rewritten_history",),
    ),
    "context_masked": Cause(
        family="context",
        meaning="observations that one engine does not attend to",
        test="Score one round with the tool results removed.",
        hypotheses=("context_masked",),
        not_at=_LATER,
    ),
    "stale_cache": Cause(
        family="weights",
        meaning="a cache filled by older weights",
        test="Record cached tokens and cache resets of each round, or reset the"
        " caches and sample again.",
        hypotheses=("stale_cache",),
    ),
    "decode_path": Cause(
        family="numerics",
        meaning="a sampler whose decoding differs from its prefill",
        test="Score 16 of these rows with the sampler by prefill.",
        hypotheses=("decode_path",),
    ),
    "packing_leak": Cause(
        family="context",
        meaning="rows of a pack that attend to each other",
        test="Record the pack of each row, or score rows 0 to 7 alone and packed.",
        hypotheses=("packing_leak",),
        not_at=_FROM_START | _OF_SOME,
    ),
    "prompt_mismatch": Cause(
        family="ids",
        meaning="different prompts in the two engines",
        test="Compare the engine's prompt ids with the saved ones.",
        hypotheses=("prompt_mismatch",),
        not_at=_FROM_START,
    ),
    "batch_shape": Cause(
        family="numerics",
        meaning="kernels that depend on the shape of the batch",
        test="Score one row alone and in its micro-batch.",
        not_at=_ROUNDING,
    ),
    "low_precision": Cause(
        family="numerics",
        meaning="log-probs or logits in a short dtype",
        test="Score again with lm_head and log-softmax in float32.",
        hypotheses=("low_precision",),
        not_at=_ROUNDING,
    ),
    "moe_routing": Cause(
        family="numerics",
        meaning="experts routed differently",
        test="Record the routed experts of both engines.",
        hypotheses=("moe_routing",),
    ),
    "model_mismatch": Cause(
        family="numerics",
        meaning="a model implemented differently",
        test="Score 8 rows of step 0 with transformers in float32.",
    ),
    "lora_mismatch": Cause(
        family="weights",
        meaning="an adapter applied differently",
        test="Score with the adapter merged.",
        hypotheses=("lora_mismatch",),
        not_at=_OF_ALL,
    ),
    # Weights.
    "stale_weights": Cause(
        family="weights",
        meaning="older weights in the sampler",
        test="Compare step 0 with a later step, or score with the checkpoint of each"
        " version.",
        hypotheses=("stale_weights",),
        not_at=_OF_ALL,
    ),
    "mixed_weights": Cause(
        family="weights",
        meaning="weights that changed while samples were written",
        test="Compare tokens by weight version, recorded for each round or token.",
        hypotheses=("mixed_weights",),
        not_at=_OF_SOME,
    ),
    "sync_broken": Cause(
        family="weights",
        meaning="weights that did not arrive",
        test="Record what is sent and received: `Recorder.weights_sent`.",
        not_at=_OF_ALL,
    ),
    "newer_weights": Cause(
        meaning="newer weights in the sampler than in the trainer",
        test="Compare the trainer's step with the versions of tokens.",
    ),
    # Which samples, not why.
    "truncated_round": Cause(
        family="mask",
        meaning="samples cut off at the length limit",
        test="Compare how each engine treats the tokens at the length limit.",
    ),
}

# Causes that a relation over all tokens shows.
FORMULAS = frozenset({"temperature", "truncated_sampling", "logit_processor"})
# What `rounddiag.prove` has hypotheses for.
PROVABLE = frozenset(name for row in CAUSES.values() for name in row.hypotheses)
# Where no cause is possible.
NEXT_STEP = "Score two of these samples again with one engine changed at a time."


@dataclass(frozen=True, kw_only=True)
class Candidate(Cause):
    """A cause that is possible, and what tests it.

    Attributes
    ----------
    cause: A name of `CAUSES`.
    clue: What was measured that speaks for the family; empty for another reading of a
        reversal.
    evidence: The numbers of the clue, and of the place and the rest.
    """

    cause: str
    clue: str = ""
    evidence: tuple[Measure, ...] = ()

    def __str__(self) -> str:
        return self.cause

    @classmethod
    def of(
        cls, name: str, clue: str = "", evidence: tuple[Measure, ...] = ()
    ) -> Candidate:
        """Return a cause as a candidate.

        Examples
        --------
        >>> Candidate.of("position_ids").test
        'Save the position ids of both engines.'
        """
        return cls(cause=name, clue=clue, evidence=evidence, **vars(CAUSES[name]))


def spread_families(names: Iterable[str]) -> list[str]:
    """Return names with the causes of a family, that have hypotheses, in its place.

    Examples
    --------
    >>> spread_families(["positions", "window_2"])
    ['position_ids', 'window_2']
    """
    causes: list[str] = []
    for name in names:
        family = [c for c, row in CAUSES.items() if row.family == name]
        causes += [c for c in family if CAUSES[c].hypotheses] or [name]
    return causes


def group_families(candidates: Collection[Candidate]) -> dict[str, str]:
    """Return the clue of each family that is listed, in their order.

    Examples
    --------
    >>> group_families([Candidate.of("position_ids", "images come before it")])
    {'positions': 'images come before it'}
    """
    return {row.family: row.clue for row in candidates if row.family}


def describe_families(candidates: Collection[Candidate]) -> list[str]:
    """Return the families of candidates in words, each with its clue.

    Examples
    --------
    >>> describe_families([Candidate.of("context_masked", "observations come before")])
    ['context (observations come before)']
    """
    with_image = any(row.with_image for row in candidates)
    words = FAMILIES if with_image else {**FAMILIES, "context": "context"}
    return [
        f"{words[family]} ({clue})" if clue else words[family]
        for family, clue in group_families(candidates).items()
    ]
