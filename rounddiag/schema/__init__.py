"""Columns and tables: the only place where a column is described."""

from __future__ import annotations

from rounddiag.schema.columns import Column as Column
from rounddiag.schema.columns import Table as Table
from rounddiag.schema.columns import count, nat, number
from rounddiag.schema.metrics import MEAN_COLUMNS as MEAN_COLUMNS
from rounddiag.schema.metrics import METRICS as METRICS
from rounddiag.schema.metrics import mean_column as mean_column
from rounddiag.schema.metrics import metric_name as metric_name
from rounddiag.schema.pair import Pair as Pair

SAMPLE = count("sample", "sample", "int32")
ROUND = count("round", "round", "int32")
TOKEN = count("token", "token in its round", "int32")
DIFF = nat("diff", "old - rollout log-prob")
ABS_DIFF = nat("abs_diff", "|old - rollout| log-prob")
POSITION = count("position", "position in the response", "int32")
ORIGINAL_SAMPLE = count("original_sample", "sample in the batch selected from")
# Where a token can stand, by the name that `stats.positions` gives it.
PLACES = {
    "round": TOKEN,
    "response": POSITION,
    "end": count("end", "tokens to the end of the round"),
    "image": count("image", "tokens since the last screenshot began"),
    "images": count("images", "screenshots seen so far"),
    "context": count("context", "tokens before it, prompt and response"),
}
NUM_TOKENS = count("num_tokens", "generated tokens")
NUM_NONFINITE = count("num_nonfinite", "tokens whose diff is not finite")
NUM_ROUNDS = count("num_rounds", "rounds")
NUM_SAMPLES = count("num_samples", "samples that reach the round")

# Aggregates are named alike in every table that has them, and mean the same there:
# over the tokens of the row whose diff is finite.
_MEANS = (
    nat(MEAN_COLUMNS["abs_diff"], METRICS["abs_diff"].meaning, "float64"),
    nat(MEAN_COLUMNS["diff"], METRICS["diff"].meaning, "float64"),
)
_MAX = nat("max_abs_diff", "largest |old - rollout| log-prob", "float64")
_AGGREGATES = (*_MEANS, _MAX, METRICS["k3"])
_IS_FEW = Column(
    name="is_few",
    dtype="bool",
    meaning="fewer than 10 samples, or groups where groups are drawn",
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
        nat("rollout_log_prob", "log-prob by the sampling engine"),
        nat("old_log_prob", "log-prob by the training engine"),
        nat("entropy", "entropy of the training engine"),
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
        count("start", "position of the first token", "int32"),
        NUM_TOKENS,
        NUM_NONFINITE,
        *_AGGREGATES,
    ),
)

# The cell of a heatmap: a round of a sample, with more than its frame tells.
CELLS = Table(
    one_row_per="sample and round",
    built_by="stats.cell_frame",
    keys=ROUNDS.keys,
    columns=(
        *ROUNDS.columns,
        METRICS["prob_diff"],
        number("beyond", "share of tokens beyond a ratio of 2"),
        nat("p95_abs_diff", "95th percentile of |old - rollout| log-prob", "float64"),
    ),
)

DIFFERENCE = nat("difference", "difference of means", "float64")
# The same cell in two batches.
PAIRED_CELLS = Table(
    one_row_per="sample and round of two batches",
    built_by="stats.paired_cells",
    keys=ROUNDS.keys,
    columns=(
        *CELLS.columns,
        count("baseline_sample", "sample in the first batch", "int32"),
        count("num_baseline_tokens", "generated tokens in the first batch"),
        number("baseline_mean", "in the first batch"),
        DIFFERENCE,
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
        number("share_zero", "share of finite tokens where the metric is exactly 0"),
        number("share_nonfinite", "share of tokens whose diff is not finite"),
        number("mean", "mean of the metric"),
        number("ci_low", "lower end of the interval of the mean"),
        number("ci_high", "upper end of the interval of the mean"),
        number("p50", "median of the metric"),
        number("p90", "90th percentile of the metric"),
        number("p95", "95th percentile of the metric"),
        number("p99", "99th percentile of the metric"),
        number("max", "largest value of the metric"),
        _IS_FEW,
        *_MEANS,
        METRICS["k3"],
        METRICS["prob_diff"],
    ),
)

# Means of tokens that are alike in something else than their round.
_CELLS = (
    count("num_samples", "samples with such tokens"),
    NUM_TOKENS,
    NUM_NONFINITE,
    number("mean", "mean of the metric"),
    number("ci_low", "lower end of the 95 % interval of the mean"),
    number("ci_high", "upper end of the 95 % interval of the mean"),
    _IS_FEW,
)
PLACE_MEANS = Table(
    one_row_per="bin of places",
    built_by="stats.positions",
    keys=("low",),
    columns=(
        Column(name="low", dtype="float64", meaning="first place of the bin"),
        Column(name="high", dtype="float64", meaning="last place of the bin"),
        *_CELLS,
    ),
)
ROLE_MEANS = Table(
    one_row_per="role",
    built_by="stats.role_means",
    keys=("role",),
    columns=(
        Column(name="role", dtype="str", meaning="what tokens are for"),
        Column(name="overlaps", dtype="bool", meaning="counted among the others too"),
        *_CELLS,
    ),
)

# What figures of both engines draw, and no frame of tokens has.
ROLLOUT_PROB = Column(
    name="rollout_prob", dtype="float32", meaning="probability by the sampling engine"
)
OLD_PROB = Column(
    name="old_prob", dtype="float32", meaning="probability by the training engine"
)
ROLLOUT_LOG_PPL = nat(
    "rollout_log_ppl", "log-perplexity by the sampling engine", "float64"
)
OLD_LOG_PPL = nat("old_log_ppl", "log-perplexity by the training engine", "float64")
SHARE = Column(name="share", dtype="float64", meaning="share of tokens at or beyond")
