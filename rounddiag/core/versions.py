"""The versions of the weights that sampled each token, and how far they lag behind."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.measured import Measured

if TYPE_CHECKING:
    import pandas as pd

# Columns with the lowest and the highest version: of tokens only, and of any scope.
_OF_TOKENS = ("weight_versions", "weight_versions")
_OF_VERL = ("min_global_steps", "max_global_steps")
_COLUMNS = (
    ("weight_version", "weight_version"),
    ("min_weight_version", "max_weight_version"),
    _OF_VERL,
)
TRAINER = "trainer_version"  # a column, or an entry of `meta`
LAG_COLUMNS = ("lag", "oldest_lag", "newest_lag")


@dataclass(frozen=True, eq=False, kw_only=True)
class Versions:
    """The version of the weights behind each generated token, NaN where unknown.

    Attributes
    ----------
    low, high: float64 arrays. Lowest and highest version that sampled the token: equal
        where each token, or each round, has a version of its own.
    trainer: float64 array. The version that the training engine scored with; the newest
        of the batch where it is not known.
    is_trainer_known: Whether the file says which version that is.
    sample: int array. The sample of each token.
    """

    low: Array
    high: Array
    trainer: Array
    is_trainer_known: bool
    sample: Array

    @classmethod
    def of(cls, batch: Batch) -> Versions | None:
        """Read the columns of a batch; None without any that has numbers.

        Where a column lacks a version, that of the next one counts: tokens, rounds,
        samples.

        The trainer's version is the column or the entry of `meta` named
        `trainer_version`. Without one, the step tells it where versions are counted as
        steps are: if the step is among them or between them, and the newest is not the
        next one, as where versions count from 1; or if the newest is that
        of the step before, after whose update verl sends weights under its number. Its
        fully asynchronous trainer counts what it sends, and not its steps.

        Examples
        --------
        >>> import rounddiag as rd
        >>> versions = Versions.of(rd.load("sample_data/stale.parquet"))
        >>> np.unique(versions.lag()).tolist()
        [0.0, 40.0]
        """
        known = {*batch.columns.extra_names}
        pairs = [(low, high if high in known else low) for low, high in _COLUMNS]
        pairs = [pair for pair in pairs if pair[0] in known]
        if _OF_TOKENS[0] in batch.token_columns:
            pairs.insert(0, _OF_TOKENS)
        if not pairs:
            return None
        names = [*chain(*pairs), *({TRAINER} & known)]
        frame = Measured.of(batch).tokens(*dict.fromkeys(names))
        low, high, trainer = np.full((3, len(frame)), np.nan)
        for pair in pairs:
            is_unknown = np.isnan(low)
            for values, name in zip((low, high), pair, strict=True):
                values[is_unknown] = _numbers(frame[name])[is_unknown]
        if np.isnan(high).all():
            return None
        stated = batch.meta.get(TRAINER)
        if not isinstance(stated, int | float) and batch.step is not None:
            newest = float(np.nanmax(high))
            if np.nanmin(low) <= batch.step <= newest != batch.step + 1:
                stated = batch.step
            elif pairs[0][0] == _OF_VERL[0] and newest == batch.step - 1:
                stated = newest
        is_known = isinstance(stated, int | float)
        trainer[:] = stated if is_known else np.nanmax(high)
        if TRAINER in known:
            trainer, is_known = _numbers(frame[TRAINER]), True
        sample = frame["sample"].to_numpy()
        return cls(
            low=low,
            high=high,
            trainer=trainer,
            is_trainer_known=is_known,
            sample=sample,
        )

    def lag(self, by: str = "lag") -> Array:
        """Return how many versions the sampler was behind the trainer, per token.

        Where the trainer's version is not known, behind the newest of the batch.
        Negative where it was ahead. `lag` counts from the lowest version of the token;
        `oldest_lag` and `newest_lag` from the oldest and newest one of its sample.
        """
        if by == "lag":
            return self.trainer - self.low
        is_oldest = by == "oldest_lag"
        num_samples = int(self.sample.max(initial=-1)) + 1
        of_samples = np.full(num_samples, np.inf if is_oldest else -np.inf)
        reduce = np.minimum if is_oldest else np.maximum
        reduce.at(of_samples, self.sample, self.low if is_oldest else self.high)
        return self.trainer - of_samples[self.sample]


def _numbers(column: pd.Series[Any]) -> Array:
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce")
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(numbers), numbers, np.nan)
