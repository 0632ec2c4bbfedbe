"""The versions of the weights that sampled each token, and how far they lag behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.measured import Measured

if TYPE_CHECKING:
    import pandas as pd

# Columns with the lowest and the highest version, those of tokens first.
_COLUMNS = (
    ("weight_versions", "weight_versions"),
    ("weight_version", "weight_version"),
    ("min_weight_version", "max_weight_version"),
    ("min_global_steps", "max_global_steps"),
)
TRAINER = "trainer_version"  # a column, or an entry of `meta`
LAG_COLUMNS = ("lag", "oldest_lag", "newest_lag")


@dataclass(frozen=True, eq=False, kw_only=True)
class Versions:
    """The version of the weights behind each generated token, NaN where unknown.

    Attributes
    ----------
    names: The columns with the lowest and highest version.
    low, high: float64 arrays. Lowest and highest version that sampled the token: equal
        where each token, or each round, has a version of its own.
    trainer: float64 array. The version that the training engine scored with.
    sample: int array. The sample of each token.
    """

    names: tuple[str, str]
    low: Array
    high: Array
    trainer: Array
    sample: Array

    @classmethod
    def of(cls, batch: Batch) -> Versions | None:
        """Read the columns of a batch; None without any that has numbers.

        The trainer's version is the column or the entry of `meta` named
        `trainer_version`. Without one, it is the newest version of the batch; or the
        step, if some versions are at most the step and others above it: then versions
        are counted as steps are.

        Examples
        --------
        >>> import rounddiag as rd
        >>> versions = Versions.of(rd.load("sample_data/stale.parquet"))
        >>> np.unique(versions.lag()).tolist()
        [0.0, 40.0]
        """
        known = {*batch.columns.extra_names}
        names = next((pair for pair in _COLUMNS if pair[0] in known), None)
        if names is None:
            return None
        names = (names[0], names[1] if names[1] in known else names[0])
        more = [TRAINER] if TRAINER in known else []
        frame = Measured.of(batch).tokens(*dict.fromkeys([*names, *more]))
        low, high = (_numbers(frame[name]) for name in names)
        if np.isnan(high).all():
            return None
        trainer = np.full(len(low), np.nan)
        if more:
            trainer = _numbers(frame[TRAINER])
        elif isinstance(stated := batch.meta.get(TRAINER), int | float):
            trainer[:] = stated
        else:
            newest = float(np.nanmax(high))
            is_step = batch.step is not None and np.nanmin(low) <= batch.step < newest
            trainer[:] = batch.step if is_step else newest
        sample = frame["sample"].to_numpy()
        return cls(names=names, low=low, high=high, trainer=trainer, sample=sample)

    def lag(self, by: str = "lag") -> Array:
        """Return how many versions the sampler was behind the trainer, per token.

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
        lag: Array = self.trainer - of_samples[self.sample]
        return lag


def _numbers(column: pd.Series[Any]) -> Array:
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce")
    numbers: Array = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers
