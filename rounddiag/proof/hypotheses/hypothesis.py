"""A hypothesis: one change of what an engine reads or computes, and its cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rounddiag.errors import BatchError, nearest
from rounddiag.proof.hypotheses.processor import Processor
from rounddiag.proof.trajectory import Request, Samples, Trajectory

Edit: TypeAlias = Callable[[Trajectory, Samples], "Request | Sequence[Request] | None"]
"""From a sample to what scores it: a pass, several, or None where it has no place."""

Need: TypeAlias = Literal[
    "logits",
    "positions",
    "pictures",
    "features",
    "resolution",
    "rotary",
    "weights",
    "experts",
    "state",
    "chat",
    "decoding",
]
NEEDS: dict[Need, str] = {
    "logits": "the logits, which this engine does not give",
    "positions": "custom positions, which this engine does not take",
    "pictures": "pictures, which this batch does not have",
    "features": "the features of the pictures, which this engine does not take",
    "resolution": "a model in this process that sees pictures of any size",
    "rotary": "the rotary frequencies, which this engine does not let change",
    "weights": "the weights, which this engine does not let change",
    "experts": "a mixture of experts",
    "state": "layers whose state goes on, such as linear attention",
    "chat": "the tokenizer of the model",
    "decoding": "a vLLM server with --enable-trace-replay",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Hypothesis:
    """One change that an engine may have made.

    Attributes
    ----------
    name: Unique; used for the score in `Proof.batch`.
    cause: A name of `rounddiag.findings.CAUSES`.
    says: What the engine did, as it is printed: "the last 2 images only".
    edit: What is read instead: one more pass or several.
    processor: What is done to the logits: no pass of its own.
    weights: The name of the weights that are used, where they are not the given ones.
    needs: What the engine must be able to do.
    cause_in_rounds: Its cause where it holds in some rounds only; empty if it is the
        same.
    is_whole: Whether it says itself where it holds: nothing is left to search.
    excludes: Whether it leaves tokens out of the distribution, so that a proof needs
        tokens that it must exclude.
    """

    name: str
    cause: str
    says: str
    edit: Edit | None = None
    processor: Processor | None = None
    weights: str = ""
    needs: frozenset[Need] = field(default_factory=frozenset)
    cause_in_rounds: str = ""
    is_whole: bool = False
    excludes: bool = False

    @property
    def is_column(self) -> bool:
        """Whether it is about a column of the batch, and nothing is scored."""
        return self.is_free and self.processor is None

    @property
    def is_free(self) -> bool:
        """Whether the pass of the base is enough."""
        return self.edit is None and not self.weights


@dataclass(frozen=True, eq=False)
class Family:
    """Hypotheses that differ in one number.

    Attributes
    ----------
    name, cause, says, needs: As of `Hypothesis`; `says` has a place for the number.
    make: From the number to the `kind` of change that a hypothesis has.
    grid: Where the search begins.
    is_continuous: Whether the number is refined between the values of the grid.
    is_ordered: Whether near whole numbers are alike: those between are tried too.
    """

    name: str
    says: str
    make: Callable[[Any], Any]
    grid: Sequence[float]
    cause: str
    kind: Literal["processor", "weights"] = "processor"
    needs: Sequence[Need] = ()
    is_continuous: bool = False
    is_ordered: bool = False

    def at(self, value: float) -> Hypothesis:
        """Return the hypothesis of one number."""
        change: dict[str, Any] = {self.kind: self.make(value)}
        return Hypothesis(
            name=self.name,
            cause=self.cause,
            says=self.says.format(f"{value:.4g}"),
            needs=frozenset(self.needs),
            excludes=self.cause == "truncated_sampling",
            **change,
        )


_REGISTERED: dict[str, Hypothesis] = {}
# Families of version 0.2 whose whole number was fitted, and their causes.
_REMOVED = {
    "first_prompt_tokens_removed": "prompt_mismatch",
    "prompt_cut_to": "prompt_mismatch",
    "position_gap": "position_ids",
    "position_gap_at_observations": "position_ids",
    "observation_masked": "context_masked",
    "image_removed": "dropped_image",
    "image_blank": "dropped_image",
    "images_exchanged": "wrong_image",
    "blurred_by": "wrong_image",
    "resolution_divided_by": "wrong_image",
    "percent_of_the_pixels": "image_expansion",
    "at_most_pixels": "image_expansion",
}


def register_hypothesis(
    name: str, says: str, *, cause: str, needs: Iterable[Need] = ()
) -> Callable[[Edit], Edit]:
    """Register a hypothesis: a function from a sample to the passes that score it.

    Parameters
    ----------
    name : str
    says : str
        What the engine did, as it is printed.
    cause : str
        A name of `rounddiag.findings.CAUSES`.
    needs : iterable of str
        What the engine must be able to do: `positions`, `pictures`, `features`,
        `rotary`, `weights`, `experts`, `chat`.

    Returns
    -------
    callable
        A decorator that returns the function unchanged.

    Examples
    --------
    >>> @register_hypothesis("no_prompt", "no prompt at all", cause="prompt_mismatch")
    ... def drop_prompt(trajectory, samples):
    ...     whole = Request.of_sample(trajectory)
    ...     return whole.keep(whole.source >= trajectory.start, whole.pictures)
    >>> "no_prompt" in registered_names()
    True
    >>> unregister_hypothesis("no_prompt")
    """

    def add(edit: Edit) -> Edit:
        _REGISTERED[name] = Hypothesis(
            name=name, cause=cause, says=says, edit=edit, needs=frozenset(needs)
        )
        return edit

    return add


def unregister_hypothesis(name: str) -> None:
    """Forget a registered hypothesis."""
    _REGISTERED.pop(name, None)


def registered_names() -> tuple[str, ...]:
    """Return the names of the registered hypotheses, in the order of registration."""
    return tuple(_REGISTERED)


def all_registered() -> tuple[Hypothesis, ...]:
    """Return the registered hypotheses."""
    return tuple(_REGISTERED.values())


def select_hypotheses(
    known: Sequence[Hypothesis],
    names: Iterable[str] | None,
    always: Collection[str] = (),
) -> list[Hypothesis]:
    """Return the hypotheses of some names or causes; all by default.

    Those of `always` need no selection: they are tested in any case, or with what they
    need, such as other checkpoints.
    """
    if names is None:
        return list(known)
    selected: list[Hypothesis] = []
    for name in names:
        mine = [each for each in known if name in (each.name, each.cause)]
        if not mine and name not in always:
            words = (word for each in known for word in (each.name, each.cause))
            every = sorted({*words, *always})
            removed = _REMOVED.get(re.sub(r"_-?\d+$", "", name))
            raise BatchError.build(
                key="hypotheses",
                expected="names of hypotheses, or causes that have some",
                found=f"{name!r}, which 0.3.0 removed" if removed else repr(name),
                advice=f"Use the cause `{removed}`, or write a hypothesis of its number"
                " with `rounddiag.proof.hypotheses.register_hypothesis`."
                if removed
                else nearest(name, every, f"Known: {', '.join(every)}."),
            )
        selected += [hypothesis for hypothesis in mine if hypothesis not in selected]
    return selected
