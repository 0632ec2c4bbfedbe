"""Fields of a trainer, looked up by its own names and fitted to its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from rounddiag.errors import LoadError
from rounddiag.loaders.tensors.ragged import row_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

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
