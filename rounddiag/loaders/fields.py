"""`FIELDS`: what a table can have for a Batch, under which names, and a value per what.

Everything that must know a name asks here: reading, `columns=`, detection, messages,
what the Recorder copies, the documentation of `load`. A name that is not in the list is
a column of the file's own: of samples, or of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rounddiag.batch.layout import PAIR

FieldScope: TypeAlias = Literal["token", "round", "sample", "batch"]
# A `mask` may cover the prompt as well: it is cut. A `record` has entries by name.
Dtype: TypeAlias = Literal["id", "mask", "number", "name", "picture", "record"]
TokensOf: TypeAlias = Literal["response", "prompt", "prompt and response"]

_IDS = (
    "Save the ids that the engines had: text cannot be turned back into the same ones."
)
_SUM = (
    "Rewards per token go by verl's name `token_level_scores`: their sum over a row is"
    " the reward."
)


@dataclass(frozen=True)
class Field:
    """A field of a Batch in a table.

    Attributes
    ----------
    name: Ours: the field of the Batch, or what it becomes there.
    aliases: Its names in tables, in the order in which they are looked up; by default
        its own.
    scope: What has one value.
    dtype: What a value is.
    part: Of which tokens there are values.
    needs: Fields without which it says nothing.
    is_mapped: Whether `columns=` may name it, and a user's table is likely to have it.
    advice: What to do about a column that cannot be it.
    """

    name: str
    aliases: tuple[str, ...] = ()
    scope: FieldScope = "token"
    dtype: Dtype = "number"
    part: TokensOf = "response"
    needs: tuple[str, ...] = ()
    is_mapped: bool = True
    advice: str = "Name another column, or leave this one out."

    def __post_init__(self) -> None:
        object.__setattr__(self, "aliases", self.aliases or (self.name,))

    @property
    def expected(self) -> str:
        """What a column must hold to be it, for a message."""
        return _EXPECTED.get((self.scope, self.dtype), _ROWS)


_ROWS = "a list of numbers per sample, one per token"
_EXPECTED: dict[tuple[FieldScope, Dtype], str] = {
    ("sample", "number"): "one number per sample",
    ("sample", "name"): "one name or number per sample",
    ("sample", "picture"): "a list of encoded pictures per sample",
}
SCORES = "token_level_scores"
_PICTURES = ("images", "multi_modal_data", "screenshots", "screenshot")
_BOTH: TokensOf = "prompt and response"
SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
    *("do_sample", "logprobs_mode"),
)
FIELDS = (
    Field("response_ids", ("responses", "response_ids"), dtype="id", advice=_IDS),
    Field("response_mask", dtype="mask"),
    Field("rollout_log_probs"),
    Field("old_log_probs"),
    Field("entropy", ("entropys", "entropy")),
    Field("advantages", ("advantages", "advantage")),
    Field("loss_mask", dtype="mask"),
    Field("round_ids", dtype="id"),
    Field(SCORES, (SCORES, "rm_scores", "token_level_rewards")),
    Field("prompt_ids", ("prompts", "prompt_ids"), dtype="id", part="prompt"),
    Field("attention_mask", dtype="mask", part=_BOTH),
    Field("position_ids", part=_BOTH),
    Field("rewards", scope="sample", advice=_SUM),
    Field("group_ids", ("uid", "group_ids"), "sample", "name"),
    Field("sample_ids", (), "sample", "name"),
    Field("images", _PICTURES, "sample", "picture"),
    # Of trainers, which need not be mapped.
    Field("input_ids", dtype="id", part=_BOTH, is_mapped=False),
    Field("rollout_is_weights", needs=("rollout_log_probs",), is_mapped=False),
    Field("versions", is_mapped=False),  # of the weights
    Field("rollout_routed_experts", dtype="id", part=_BOTH, is_mapped=False),
    Field("routed_experts", dtype="id", part=_BOTH, is_mapped=False),
    Field("multi_modal_inputs", (), "sample", "record", is_mapped=False),
    Field("pixel_values", (), "sample", "picture", is_mapped=False),
    Field("extra_fields", (), "sample", "record", is_mapped=False),
    Field("reward_extra_info", (), "sample", "record", is_mapped=False),
    Field("round_records", (), "round", "record", is_mapped=False),
    Field("turn_scores", (), "round", is_mapped=False),
    Field("step", ("global_steps", "global_step", "step"), "batch", is_mapped=False),
    Field("old_log_probs_source", (), "batch", "name", is_mapped=False),
    *(Field(name, (), "batch", is_mapped=False) for name in SAMPLING),
)
REQUIRED = ("response_ids", "response_mask")
SCORE = re.compile(r"(.+)_log_?probs?")  # a further set of log-probabilities
_MAPPED_SCORE = re.compile(r"\w+_log_probs?")  # `columns=` takes our spelling only
_BY_ALIAS = {alias: field for field in FIELDS for alias in field.aliases}


def our_name(name: str) -> str:
    """Return our name of a field that a table or `columns` may name as verl does.

    Examples
    --------
    >>> our_name("uid"), our_name("ref_log_prob"), our_name("rewards")
    ('group_ids', 'ref_log_probs', 'rewards')
    """
    plural = f"{name}s" if name.endswith("_log_prob") else name
    return _BY_ALIAS[plural].name if plural in _BY_ALIAS else plural


def field_of(name: str) -> Field | None:
    """Return the field that a table or `columns` names so; None for another name.

    Examples
    --------
    >>> field_of("responses").expected
    'a list of numbers per sample, one per token'
    >>> field_of("kl") is None
    True
    """
    name = our_name(name)
    score = Field(name) if _MAPPED_SCORE.fullmatch(name) else None
    return _BY_ALIAS.get(name, score)


def is_per_token(name: str) -> bool:
    """Return whether a column of this name has a value per token of the response.

    The ids and the mask themselves are not meant.

    Examples
    --------
    >>> [is_per_token(name) for name in ("entropys", "ref_logprobs", "responses", "kl")]
    [True, True, False, False]
    """
    field = field_of(name)
    if field is None or field.name in ("response_ids", "response_mask"):
        return field is None and SCORE.fullmatch(name) is not None
    return (field.scope, field.part) == ("token", "response")


def aliases_of(name: str) -> tuple[str, ...]:
    """Return the names of a field in tables, in the order in which to look them up."""
    return _BY_ALIAS[name].aliases


def names_where(**properties: object) -> tuple[str, ...]:
    """Return our names of the fields with some properties.

    Examples
    --------
    >>> names_where(dtype="mask")
    ('response_mask', 'loss_mask', 'attention_mask')
    """
    return tuple(
        field.name
        for field in FIELDS
        if all(getattr(field, name) == value for name, value in properties.items())
    )


def columns_example(known: Iterable[str]) -> str:
    """Return an example of `columns=` for a message.

    Examples
    --------
    >>> columns_example(["response_ids", "response_mask", "rollout_log_probs", "lp"])
    'Name the columns: `columns={"old_log_probs": "..."}`.'
    """
    ours = {*map(our_name, known)}
    pairs = ", ".join(
        f'"{name}": "..."' for name in (*REQUIRED, *PAIR) if name not in ours
    )
    return f"Name the columns: `columns={{{pairs}}}`."
