"""Columns and tables: the only place where a column is described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rounddiag.errors import FrameError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, kw_only=True)
class Column:
    """What a column is called, holds, and means.

    Attributes
    ----------
    name : str
        Name in every frame.
    dtype : str
        Dtype of a frame built by this package.
    unit : str
        Unit of the values; empty where there is none.
    meaning : str
        One line for axes, hover texts and tables.
    """

    name: str
    dtype: str
    unit: str = ""
    meaning: str

    @property
    def label(self) -> str:
        """Meaning with its unit, for an axis.

        Examples
        --------
        >>> DIFF.label
        'old - rollout log-prob [nat]'
        """
        return f"{self.meaning} [{self.unit}]" if self.unit else self.meaning


@dataclass(frozen=True, kw_only=True)
class Table:
    """A kind of frame: one row per what, and the columns it may have.

    Attributes
    ----------
    one_row_per : str
        What a row stands for.
    built_by : str
        Name of the public function that builds it.
    keys : tuple of str
        Columns that together name a row.
    columns : tuple of Column
        In the order of a frame.
    """

    one_row_per: str
    built_by: str
    keys: tuple[str, ...]
    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def require(self, found: Iterable[str], *names: str) -> None:
        """Raise unless all `names` are among the columns that were found.

        Raises
        ------
        FrameError
            Naming what is missing and which function makes it.
        """
        present = [str(name) for name in found]
        missing = [name for name in names if name not in present]
        if missing:
            raise FrameError.build(
                expected=f"a frame with one row per {self.one_row_per} and the columns"
                f" {list(names)}",
                found=f"{present}, without {missing}",
                advice=f"Build it with `rounddiag.{self.built_by}(batch)`.",
            )


def _nat(name: str, meaning: str, dtype: str = "float32") -> Column:
    return Column(name=name, dtype=dtype, unit="nat", meaning=meaning)


def _count(name: str, meaning: str, dtype: str = "int64") -> Column:
    return Column(name=name, dtype=dtype, meaning=meaning)


SAMPLE = _count("sample", "sample", "int32")
ROUND = _count("round", "round", "int32")
TOKEN = _count("token", "token in its round", "int32")
DIFF = _nat("diff", "old - rollout log-prob")
ABS_DIFF = _nat("abs_diff", "|old - rollout| log-prob")
POSITION = _count("position", "position in the response", "int32")
ORIGINAL_SAMPLE = _count("original_sample", "sample in the batch selected from")
# Where a token can stand, by the name that `stats.positions` gives it.
PLACES = {
    "round": TOKEN,
    "response": POSITION,
    "end": _count("end", "tokens to the end of the round"),
    "image": _count("image", "tokens since the last screenshot began"),
    "images": _count("images", "screenshots seen so far"),
    "context": _count("context", "tokens before it, prompt and response"),
}
NUM_TOKENS = _count("num_tokens", "generated tokens")
NUM_NONFINITE = _count("num_nonfinite", "tokens whose diff is not finite")
NUM_ROUNDS = _count("num_rounds", "rounds")
NUM_SAMPLES = _count("num_samples", "samples that reach the round")

# Aggregates are named alike in every table that has them, and mean the same there:
# over the tokens of the row whose diff is finite.
_MEAN_ABS_DIFF = _nat("mean_abs_diff", "mean |old - rollout| log-prob", "float64")
_MEAN_DIFF = _nat("mean_diff", "mean old - rollout log-prob", "float64")
_MAX = "largest |old - rollout| log-prob"
_K3 = _nat("k3", "mean k3 estimate of KL(rollout | old)", "float64")
_AGGREGATES = (
    _MEAN_ABS_DIFF,
    _MEAN_DIFF,
    _nat("max_abs_diff", _MAX, "float64"),
    _K3,
)

TOKENS = Table(
    one_row_per="generated token",
    built_by="token_frame",
    keys=("sample", "round", "token"),
    columns=(
        SAMPLE,
        ROUND,
        TOKEN,
        DIFF,
        POSITION,
        Column(name="token_id", dtype="int32", meaning="token id"),
        _nat("rollout_log_prob", "log-prob by the sampling engine"),
        _nat("old_log_prob", "log-prob by the training engine"),
        _nat("entropy", "entropy of the training engine"),
        Column(
            name="prob_diff", dtype="float32", meaning="|old - rollout| probability"
        ),
        Column(name="role", dtype="category", meaning="what the token is for"),
        Column(name="text", dtype="str", meaning="text of the token"),
    ),
)

ROUNDS = Table(
    one_row_per="sample and round",
    built_by="round_frame",
    keys=("sample", "round"),
    columns=(
        SAMPLE,
        ROUND,
        _count("start", "position of the first token", "int32"),
        NUM_TOKENS,
        NUM_NONFINITE,
        *_AGGREGATES,
    ),
)

SAMPLES = Table(
    one_row_per="sample",
    built_by="sample_frame",
    keys=("sample",),
    columns=(
        SAMPLE,
        Column(name="sample_id", dtype="str", meaning="name of the sample"),
        Column(name="group_id", dtype="str", meaning="group: samples of one prompt"),
        Column(name="reward", dtype="float64", meaning="reward"),
        NUM_ROUNDS,
        NUM_TOKENS,
        NUM_NONFINITE,
        *_AGGREGATES,
    ),
)

SUMMARY = Table(
    one_row_per="round",
    built_by="round_summary",
    keys=("round",),
    columns=(
        ROUND,
        NUM_SAMPLES,
        NUM_TOKENS,
        NUM_NONFINITE,
        _MEAN_ABS_DIFF,
        _nat("ci_low", "lower end of the 95 % interval of the mean", "float64"),
        _nat("ci_high", "upper end of the 95 % interval of the mean", "float64"),
        _nat("p50", "median |old - rollout| log-prob", "float64"),
        _nat("p95", "95th percentile of |old - rollout| log-prob", "float64"),
        _nat("p99", "99th percentile of |old - rollout| log-prob", "float64"),
        _nat("max", _MAX, "float64"),
        _MEAN_DIFF,
        _K3,
        Column(
            name="prob_diff",
            dtype="float64",
            meaning="mean |old - rollout| probability",
        ),
    ),
)

# What figures of both engines draw, and no frame of tokens has.
ROLLOUT_PROB = Column(
    name="rollout_prob", dtype="float32", meaning="probability by the sampling engine"
)
OLD_PROB = Column(
    name="old_prob", dtype="float32", meaning="probability by the training engine"
)
ROLLOUT_LOG_PPL = _nat(
    "rollout_log_ppl", "log-perplexity by the sampling engine", "float64"
)
OLD_LOG_PPL = _nat("old_log_ppl", "log-perplexity by the training engine", "float64")
SHARE = Column(name="share", dtype="float64", meaning="share of tokens at or beyond")
