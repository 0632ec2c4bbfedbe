"""Fields of one file, looked up by name and fitted to its responses."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.nn.functional import pad

from rounddiag.errors import LoadError
from rounddiag.loaders.lazy.arrays import Ragged, ragged, row_list
from rounddiag.loaders.messages import format_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor


T = TypeVar("T")
_ADVICE = {
    "responses": "A batch needs verl's fields `responses`, `response_mask`,"
    " `rollout_log_probs` and `old_log_probs`.",
    "rollout_log_probs": "Let the sampler return them"
    " (`actor_rollout_ref.rollout.calculate_log_probs=True` in verl) and save again.",
    "old_log_probs": "The file was written before the training engine computed them,"
    " as verl's gen_batch.dp and tq_batch.pt are: save it after"
    " `batch = batch.union(old_log_prob)`, with"
    " `rounddiag.capture.save_batch(batch, path)`.",
    "response_mask": "Save `response_mask` too: without a mask nobody knows what the"
    " model wrote.",
}
_IN_MEMORY = {
    "rollout_log_probs": "Let the sampler return them, and pass them with the others.",
    "old_log_probs": "Pass them with the others, after the training engine computed"
    " them.",
}


class FieldReader:
    """Looks up the fields of one file.

    Parameters
    ----------
    fields : mapping of str to rows
    source : path-like
        Named in messages.
    """

    def __init__(self, fields: Mapping[str, Any], source: object) -> None:
        self.fields, self.source = fields, source
        # `in` on a mapping that reads when looked up would read the whole field.
        self.names = tuple(fields)
        name = "responses" if "responses" in self.names else "response_ids"
        self.responses = self._required(name, "responses", "the token ids of responses")
        self.num_samples = len(self.responses.lengths)

    def _required(self, name: str, key: str, meaning: str) -> Ragged:
        found = self.rows(name)
        if found is None:
            # What is passed in memory need not be verl's.
            advice = _ADVICE | (_IN_MEMORY if self.source == dict.__name__ else {})
            raise LoadError.build(
                file=self.source,
                key=key,
                expected=meaning,
                found=f"only {format_names(self.names)}",
                advice=advice[key],
            )
        return found

    @cached_property
    def prompts(self) -> Ragged | None:
        """The prompts, where they are there."""
        return self.rows("prompts") or self.rows("prompt_ids")

    def rows(self, name: str) -> Ragged | None:
        """Return a field as rows of positions, where it is there."""
        return self._converted(name, ragged)

    def row_list(self, name: str) -> list[Tensor] | None:
        """Return a field as rows that may have dimensions of their own."""
        return self._converted(name, row_list)

    def _converted(self, name: str, convert: Callable[[object], T]) -> T | None:
        try:
            value = self.fields.get(name)
            return None if value is None else convert(value)
        except LoadError:
            raise
        except (ValueError, TypeError, RuntimeError) as error:
            raise self.misfit(
                key=name, expected="rows of numbers", found=f"{error!s:.80}"
            ) from error

    def misfit(self, *, key: str, expected: str, found: str) -> LoadError:
        """Build the LoadError of a field that does not fit."""
        return LoadError.build(
            file=self.source,
            key=key,
            expected=expected,
            found=found,
            advice="Save every field for the same samples and response positions.",
        )

    def per_token(self, *names: str) -> Tensor | None:
        """Return the first of these fields that is there, one value a position."""
        name = next((name for name in names if name in self.names), None)
        found = None if name is None else self.rows(name)
        if name is None or found is None:
            return None
        if not self._fits(found):
            raise self.misfit(
                key=name, expected=shape_of(self.responses), found=shape_of(found)
            )
        return found.values

    def _fits(self, found: Ragged) -> bool:
        same = torch.equal(found.offsets, self.responses.offsets)
        return same and found.values.shape == self.responses.values.shape

    def log_probs(self, name: str) -> Tensor:
        """Return one of the two required sets of log-probabilities."""
        found = self.per_token(name)
        if found is None:
            meaning = "the log-probabilities of the " + (
                "training engine" if name == "old_log_probs" else "sampling engine"
            )
            found = self._required(name, name, meaning).values
        return found

    def mask(self) -> tuple[Tensor, str]:
        """Return the mask of what the model wrote, and which field it is."""
        for name in ("response_mask", "loss_mask", "attention_mask"):
            found = self.response_part(name)
            if found is not None:
                return found, name
        meaning = "a mask of the tokens that the model wrote"
        return self._required("response_mask", "response_mask", meaning).values, ""

    def response_part(self, name: str) -> Tensor | None:
        """Return a field of responses; of one that has prompts too, the last part."""
        found = self.rows(name)
        if found is None or self._fits(found):
            return None if found is None else found.values
        if not self._is_whole(found):
            raise self.misfit(
                key=name, expected=shape_of(self.responses), found=shape_of(found)
            )
        return found.tails(self.responses.lengths).values

    def _is_whole(self, found: Ragged) -> bool:
        """Whether rows are as long as prompt and response; cut otherwise, they shift.

        Without prompts, `input_ids` or `attention_mask` say how long that is.
        """
        if found.values.dim() != 1 or len(found.lengths) != self.num_samples:
            return False
        if self.prompts is not None:
            parts = (self.prompts.lengths, self.responses.lengths)
            same_rows = len(parts[0]) == self.num_samples
            return same_rows and torch.equal(found.lengths, parts[0] + parts[1])
        known = [self.rows(other) for other in ("input_ids", "attention_mask")]
        longer = bool((found.lengths >= self.responses.lengths).all())
        return longer and any(
            whole is not None and torch.equal(found.lengths, whole.lengths)
            for whole in known
        )

    def row_sums(self, *names: str) -> Tensor | None:
        """Return the sum over each row of the first of these fields that is there."""
        name = next((name for name in names if name in self.names), None)
        if name is None:
            return None
        found = self.rows(name)
        if found is None:
            return None
        sums = [row.sum() for row in found.rows()]
        return torch.stack(sums) if sums else found.values.new_zeros(0)


def shape_of(field: Ragged) -> str:
    """Say how many rows of which length a field has."""
    if field.is_padded and len(field.lengths):
        return f"{len(field.lengths)} rows of {int(field.lengths[0])} positions"
    return f"{len(field.lengths)} rows of {field.lengths.tolist()[:4]} positions"


PLACES = "position_ids"  # which alone may have several values a token


class RowReader:
    """Looks up fields, each as rows as long as those of the tokens.

    Parameters
    ----------
    held : mapping of str to rows
        It may read from a file when looked up.
    source : path-like
        Named in messages.
    tokens : str
        The field of token ids.
    most_lacking : int
        How many of the first tokens a field may have no value for: 0 or 1.
    """

    def __init__(
        self, held: Mapping[str, Any], source: object, tokens: str, *, most_lacking: int
    ) -> None:
        self._held, self._source, self._key = held, source, tokens
        self._most_lacking = most_lacking
        # `in` on a mapping that reads when looked up would read the whole field.
        self._names = tuple(held)
        self.tokens = self._rows(tokens)

    def required(self, name: str) -> list[Tensor]:
        """Return a field that has to be there."""
        found = self.field(name)
        return self._rows(name) if found is None else found

    def real(self) -> list[Tensor]:
        """Return which tokens are no padding."""
        found = self.field("attention_mask") or map(torch.ones_like, self.tokens)
        return [row != 0 for row in found]

    def field(self, name: str) -> list[Tensor] | None:
        """Return a field, with 0 for the first token where it has no value."""
        if name not in self._names:
            return None
        rows = self._rows(name)
        dims = {row.dim() for row in rows} - {1}
        if dims and name != PLACES:
            raise self._misfit(
                name,
                expected="one value a token",
                found=f"rows of {max(dims)} dimensions",
            )
        sizes = [len(row) for row in self.tokens]
        lacking = {size - row.shape[-1] for row, size in zip(rows, sizes, strict=False)}
        if (
            len(rows) != len(sizes)
            or len(lacking) > 1
            or not lacking <= {0, self._most_lacking}
        ):
            raise self._misfit(
                name,
                expected=f"{len(sizes)} rows, as long as those of `{self._key}`"
                + " or without the first token" * self._most_lacking,
                found=f"{len(rows)} rows of {[row.shape[-1] for row in rows[:4]]},"
                f" where those have {sizes[:4]}",
            )
        return [pad(row, (max(lacking, default=0), 0)) for row in rows]

    def _rows(self, name: str) -> list[Tensor]:
        if name not in self._names:
            raise self._misfit(name, expected="this field", found="none")
        try:
            return row_list(self._held[name])
        except (ValueError, TypeError, RuntimeError) as error:
            raise self._misfit(
                name, expected="rows of numbers", found=f"{error!s:.80}"
            ) from error

    def _misfit(self, key: str, *, expected: str, found: str) -> LoadError:
        return LoadError.build(
            file=self._source,
            key=key,
            expected=expected,
            found=found,
            advice="Save every field for the same samples and tokens.",
        )
