"""What a model was asked about a batch, as figures and the explorer know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rounddiag.batch import Batch

if TYPE_CHECKING:
    import pandas as pd


@runtime_checkable
class AskedModel(Protocol):
    """What a model answered about places of a batch: a `rounddiag.proof.Answer`."""

    @property
    def alternatives(self) -> pd.DataFrame:
        """A row per place and likely token, of `schema.ALTERNATIVES`."""

    @property
    def tiles(self) -> pd.DataFrame:
        """A row per tile of a picture, of `schema.TILES`."""

    @property
    def rounds(self) -> pd.DataFrame:
        """A row per round that was asked about, of `schema.ASKED_ROUNDS`."""

    def sentences(self, sample: int, number: int) -> list[str]:
        """Return what is said of a round."""

    def require_batch(self) -> Batch:
        """Return the batch; an error if it was not passed."""

    def require_fit(self, batch: Batch) -> None:
        """Raise a BatchError unless it is about a batch."""
