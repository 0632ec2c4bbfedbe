"""Look up the fields of a file by name, check their shapes, and remove padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from rounddiag.columns.sources import Ragged, as_ragged, row_list
from rounddiag.errors import LoadError
from rounddiag.loaders.fields import aliases_of, field_of, names_where
from rounddiag.wording import format_names, join_names

T = TypeVar("T")
MASKS = names_where(dtype="mask")  # in the order in which one is taken
_POSITION_IDS = "position_ids"  # the only field that may have several values per token
_SAME_SHAPE = "Save every field for the same samples and tokens."
_EXPECTED = {
    "responses": "the token ids of responses",
    "response_mask": "a mask of the tokens that the model wrote",
    "rollout_log_probs": "the log-probabilities of the sampling engine",
    "old_log_probs": "the log-probabilities of the training engine",
}
_ADVICE = {
    "responses": "A batch needs verl's fields `responses` and `response_mask`.",
    "response_mask": "Save `response_mask` as well: without it, generated tokens cannot"
    " be distinguished from observations.",
}
# Sources of columns that were passed in memory, which need not be verl's.
_IN_MEMORY = {"dict", "DataProto", "TensorDict"}
_ADVICE_IN_MEMORY = {
    "rollout_log_probs": "Let the sampler return them"
    " (`actor_rollout_ref.rollout.calculate_log_probs=True` in verl), and pass them"
    " with the others.",
    "old_log_probs": "Pass them with the others, after the training engine computed"
    " them. verl skips that with `algorithm.rollout_correction.bypass_mode=True`.",
}


class FieldReader:
    """Looks up the fields of one file.

    Parameters
    ----------
    fields : mapping of str to rows
        Padded or nested tensors, or sequences of rows. A field is read when it is
        looked up.
    source : path-like
        Named in messages.
    tokens : str, optional
        The field of token ids. By default verl's `responses`, or `response_ids`.
    advice : str
        What to do about a field whose shape does not fit.

    Attributes
    ----------
    names: The names of all fields.
    tokens: The token ids.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        source: object,
        tokens: str | None = None,
        *,
        advice: str = _SAME_SHAPE,
    ) -> None:
        self.fields, self.source, self._advice = fields, source, advice
        # `in` on a mapping of another type may read the whole field.
        self.names = tuple(fields)
        self._key = tokens or self.find("response_ids") or "responses"
        self.tokens = self.require(self._key)
        self.num_samples = len(self.tokens.lengths)

    def find(self, name: str) -> str | None:
        """Return under which name the fields have one of `FIELDS`; None without it."""
        return next((name for name in aliases_of(name) if name in self.names), None)

    def rows(self, name: str) -> Ragged | None:
        """Return a field as rows of positions, or None if it is missing.

        Tables have ids as floats where any list had a null; whole ones are ids.
        """
        rows, field = self._convert(name, as_ragged), field_of(name)
        is_id = field is not None and field.dtype == "id"
        if rows is None or not is_id or not rows.values.is_floating_point():
            return rows
        ids = rows.values.nan_to_num().long()
        if not torch.equal(ids.to(rows.values.dtype), rows.values):
            odd = rows.values[ids != rows.values]
            raise self.misfit(
                key=name,
                expected="whole numbers",
                found=f"{float(odd[0])} and {len(odd) - 1} more that are none",
                advice="Write the ids without missing values.",
            )
        return replace(rows, values=ids)

    def row_list(self, name: str) -> list[Tensor] | None:
        """Return a field as rows that may have more dimensions, or None."""
        return self._convert(name, row_list)

    def require(self, name: str) -> Ragged:
        """Return a field as rows of positions; a LoadError if it is missing."""
        rows = self.rows(name)
        if rows is not None:
            return rows
        in_memory = _ADVICE_IN_MEMORY if str(self.source) in _IN_MEMORY else {}
        raise self.misfit(
            key=name,
            expected=_EXPECTED.get(name, "this field"),
            found=f"only {format_names(self.names)}",
            advice={**_ADVICE, **in_memory}.get(name),
        )

    def _convert(self, name: str, convert: Callable[[object], T]) -> T | None:
        try:
            value = self.fields.get(name)
            return None if value is None else convert(value)
        except LoadError:
            raise
        except (ValueError, TypeError, RuntimeError) as error:
            raise self.misfit(
                key=name, expected="rows of numbers", found=f"{error!s:.80}"
            ) from error

    def misfit(
        self, *, key: str, expected: str, found: str, advice: str | None = None
    ) -> LoadError:
        """Build the LoadError of a field that is missing or does not fit."""
        return LoadError.build(
            file=self.source,
            key=key,
            expected=expected,
            found=found,
            advice=advice or self._advice,
        )

    # One value per token

    def per_token(self, name: str) -> Tensor | None:
        """Return the values of one of `FIELDS`, end to end; of masks the response."""
        alias = self.find(name)
        rows = None if alias is None else self.rows(alias)
        if alias is None or rows is None:
            return None
        if self._fits(rows):
            return rows.values
        if name not in MASKS or not self._has_prompts(rows):
            raise self.misfit(
                key=alias,
                expected=_describe_shape(self.tokens),
                found=_describe_shape(rows),
            )
        return rows.tails(self.tokens.lengths).values

    def optional(self, name: str) -> Tensor | None:
        """Return the values of one of `FIELDS`, if it fits and has what it needs."""
        alias, field = self.find(name), field_of(name)
        has_needs = field is not None and all(map(self.find, field.needs))
        return self.per_token_if_it_fits(alias) if alias and has_needs else None

    def may_fit(self, name: str) -> bool:
        """Return whether a field may have one value per token; reads nothing."""
        size_of = getattr(self.fields, "size_of", None)
        size = None if size_of is None else size_of(name)
        return size in (None, (self.num_samples, self.tokens.values.numel()))

    def per_token_if_it_fits(self, name: str) -> Tensor | None:
        """Return the values of a field, or None if it has another shape."""
        try:
            rows = as_ragged(self.fields[name])
        except (ValueError, TypeError, RuntimeError):  # LoadError, of Arrow, is one
            return None
        return rows.values if self._fits(rows) else None

    def _fits(self, rows: Ragged) -> bool:
        same = torch.equal(rows.offsets, self.tokens.offsets)
        return same and rows.values.shape == self.tokens.values.shape

    def token_rows(
        self, name: str, *, may_lack_first: bool = False
    ) -> list[Tensor] | None:
        """Return a field as rows as long as those of the tokens, or None."""
        rows = self.row_list(name)
        if rows is None:
            return None
        dims = {row.dim() for row in rows} - {1}
        if dims and name != _POSITION_IDS:
            raise self.misfit(
                key=name,
                expected="one value per token",
                found=f"rows of {max(dims)} dimensions",
            )
        sizes = self.tokens.lengths.tolist()
        lacking = {size - row.shape[-1] for row, size in zip(rows, sizes, strict=False)}
        fits = len(lacking) <= 1 and lacking <= {0, int(may_lack_first)}
        if len(rows) != len(sizes) or not fits:
            raise self.misfit(
                key=name,
                expected=f"{len(sizes)} rows, as long as those of `{self._key}`"
                + " or without the first token" * may_lack_first,
                found=_misfits([row.shape[-1] for row in rows], sizes),
            )
        return [pad(row, (max(lacking, default=0), 0)) for row in rows]

    def required_token_rows(
        self, name: str, *, may_lack_first: bool = False
    ) -> list[Tensor]:
        """Return what `token_rows` does; a LoadError if the field is missing."""
        rows = self.token_rows(name, may_lack_first=may_lack_first)
        return self.require(name).rows() if rows is None else rows

    def both_log_probs(self) -> tuple[Tensor, Tensor]:
        """Return those of training and sampling engine; a LoadError without one."""
        names = ("old_log_probs", "rollout_log_probs")
        old, rollout = (self.per_token(name) for name in names)
        return (
            self.require("old_log_probs").values if old is None else old,
            self.require("rollout_log_probs").values if rollout is None else rollout,
        )

    def mask(self) -> tuple[Tensor, str]:
        """Return the mask of what the model wrote, and the name of its field."""
        for name in MASKS:
            values = self.per_token(name)
            if values is not None:
                return values, name
        return self.require("response_mask").values, ""

    # Prompts and responses

    @cached_property
    def prompts(self) -> Ragged | None:
        """The prompts, or None."""
        rows = map(self.rows, aliases_of("prompt_ids"))
        return next(filter(None, rows), None)

    def _has_prompts(self, rows: Ragged) -> bool:
        """Whether rows are as long as prompt and response together.

        Without prompts, that length is the one of `input_ids` or `attention_mask`.
        Rows of any other length must not be cut: their values would shift.
        """
        if rows.values.dim() != 1 or len(rows.lengths) != self.num_samples:
            return False
        if self.prompts is not None:
            parts = (self.prompts.lengths, self.tokens.lengths)
            same_rows = len(parts[0]) == self.num_samples
            return same_rows and torch.equal(rows.lengths, parts[0] + parts[1])
        wholes = [self.rows(other) for other in ("input_ids", "attention_mask")]
        longer = bool((rows.lengths >= self.tokens.lengths).all())
        return longer and any(
            whole is not None and torch.equal(rows.lengths, whole.lengths)
            for whole in wholes
        )

    def row_sums(self, name: str) -> Tensor | None:
        """Return the sum over each row of one of `FIELDS`."""
        alias = self.find(name)
        rows = None if alias is None else self.rows(alias)
        if rows is None:
            return None
        sums = [row.sum() for row in rows.rows()]
        return torch.stack(sums) if sums else rows.values.new_zeros(0)


def _describe_shape(rows: Ragged) -> str:
    if rows.is_padded and len(rows.lengths):
        return f"{len(rows.lengths)} rows of {int(rows.lengths[0])} positions"
    return f"{len(rows.lengths)} rows of {rows.lengths.tolist()[:4]} positions"


def without_padding(reader: FieldReader) -> dict[str, Any]:
    """Return lengths, prompts and position ids of a batch, without padding.

    Nested fields have no padding. Without `attention_mask`, no padding is assumed.
    """
    real = real_positions(reader)
    return {
        "lengths": _lengths(reader, real),
        **_prompts(reader, real),
        _POSITION_IDS: _position_ids(reader, real),
    }


def real_positions(reader: FieldReader) -> list[Tensor] | None:
    """Return a mask of the real positions of prompt and response, per sample."""
    mask = reader.rows("attention_mask") if reader.tokens.is_padded else None
    if mask is None:
        return None
    if len(mask.lengths) != reader.num_samples or mask.values.dim() != 1:
        raise reader.misfit(
            key="attention_mask",
            expected=f"{reader.num_samples} rows of positions",
            found=_describe_shape(mask),
        )
    if bool((mask.lengths < reader.tokens.lengths).any()):
        raise reader.misfit(
            key="attention_mask",
            expected=f"at least {_describe_shape(reader.tokens)}",
            found=_describe_shape(mask),
        )
    return [row != 0 for row in mask.rows()]


def _lengths(reader: FieldReader, real: list[Tensor] | None) -> Tensor:
    stored = reader.tokens.lengths
    if real is None:
        return stored
    pairs = zip(real, stored.tolist(), strict=True)
    ends = [mask_end(row[len(row) - width :]) for row, width in pairs]
    return torch.tensor(ends, dtype=torch.int64, device=stored.device)


def mask_end(mask: Tensor) -> int:
    """Return the position after the last 1 of a mask; 0 if there is none.

    Examples
    --------
    >>> mask_end(torch.tensor([0, 1, 1, 0]))
    3
    """
    positions = mask.nonzero()
    return int(positions[-1]) + 1 if len(positions) else 0


def _prompts(reader: FieldReader, real: list[Tensor] | None) -> dict[str, Tensor]:
    prompts = reader.prompts
    if prompts is None:
        return {}
    if len(prompts.lengths) != reader.num_samples:
        raise reader.misfit(
            key="prompts",
            expected=f"{reader.num_samples} rows of positions",
            found=_describe_shape(prompts),
        )
    if real is not None:
        wholes = (prompts.lengths + reader.tokens.lengths).tolist()
        if wholes != [len(row) for row in real]:
            raise reader.misfit(
                key="attention_mask",
                expected=f"{wholes[:1]} positions per row, of prompt and response",
                found=f"{[len(row) for row in real[:1]]}",
            )
        pairs = zip(prompts.rows(), real, strict=True)
        prompts = as_ragged([row[keep[: len(row)]] for row, keep in pairs])
    return {"prompt_ids": prompts.values, "prompt_offsets": prompts.offsets}


def _position_ids(
    reader: FieldReader, real: list[Tensor] | None
) -> tuple[Tensor, ...] | None:
    rows = reader.row_list(_POSITION_IDS)
    if rows is None or real is None:
        return None if rows is None else tuple(rows)
    sizes = [row.shape[-1] for row in rows]
    if sizes != [len(row) for row in real]:
        raise reader.misfit(
            key=_POSITION_IDS,
            expected="rows as long as those of `attention_mask`",
            found=f"{len(rows)} rows of {sizes[:1]} positions",
        )
    return tuple(_real_part(row, keep) for row, keep in zip(rows, real, strict=True))


def _real_part(row: Tensor, real: Tensor) -> Tensor:
    """Remove the padding, as a view if it is at the two ends only."""
    positions = real.nonzero()[:, 0]
    if not len(positions):
        return row[..., :0]
    first, stop = int(positions[0]), int(positions[-1]) + 1
    has_gaps = stop - first > len(positions)
    return row[..., real] if has_gaps else row[..., first:stop]


def divide_sequences(
    fields: Mapping[str, Any],
    source: object,
    *,
    tokens: str,
    written: str,
    names: Mapping[str, str],
) -> dict[str, list[Tensor]]:
    """Split whole sequences into prompt and response, under verl's names, unpadded.

    The prompt ends before the first token that the model wrote, and has at least one
    token. The response ends at the last token that `attention_mask` marks.
    """
    reader = FieldReader(fields, source, tokens)
    ids = reader.tokens.rows()
    mask = reader.required_token_rows(written, may_lack_first=True)
    attended = reader.token_rows("attention_mask", may_lack_first=True)
    real = [row != 0 for row in attended or map(torch.ones_like, ids)]
    spans = [_span(*rows) for rows in zip(mask, real, strict=True)]
    parts = {"responses": ids, "response_mask": mask}
    for theirs, ours in names.items():
        rows = reader.token_rows(theirs, may_lack_first=True)
        if rows is not None:
            parts[ours] = rows
    prompts = [
        row[:start][keep[:start]]
        for row, keep, (start, _) in zip(ids, real, spans, strict=True)
    ]
    responses = {
        name: [row[slice(*span)] for row, span in zip(rows, spans, strict=True)]
        for name, rows in parts.items()
    }
    position_ids = reader.token_rows(_POSITION_IDS, may_lack_first=True)
    if position_ids is not None:
        pairs = zip(position_ids, real, strict=True)
        responses[_POSITION_IDS] = [row[..., keep] for row, keep in pairs]
    return {"prompts": prompts, **responses}


def _span(mask: Tensor, real: Tensor) -> tuple[int, int]:
    written, stop = mask.nonzero(), mask_end(real)
    return max(1, int(written[0]) if len(written) else stop), stop


def _misfits(sizes: Sequence[int], wanted: Sequence[int]) -> str:
    """Say which rows have another length than those of the tokens, and by how much."""
    if len(sizes) != len(wanted):
        return f"{len(sizes)} rows"
    pairs = enumerate(zip(sizes, wanted, strict=True))
    off = {row: abs(own - size) for row, (own, size) in pairs if own != size}
    low, high, first = min(off.values()), max(off.values()), next(iter(off))
    by = f"{low}" if low == high else f"{low} to {high}"
    return (
        f"{len(off)} of {len(wanted)} rows with another length, by {by}:"
        f" {join_names([*off])} (row {first} has {sizes[first]}, and"
        f" {wanted[first]} there)"
    )
