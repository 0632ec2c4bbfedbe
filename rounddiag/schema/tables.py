"""Tables: the frames of the package, with what a row is and the columns they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from rounddiag.errors import FrameError
from rounddiag.schema.columns import (
    DIFF,
    IS_FEW,
    NUM_NONFINITE,
    NUM_ROUNDS,
    NUM_SAMPLES,
    NUM_TOKENS,
    POSITION,
    ROUND,
    SAMPLE,
    STEP,
    TOKEN,
    ColumnSchema,
    count,
    nat,
)
from rounddiag.schema.corrections import CORRECTIONS, weight_column
from rounddiag.schema.metrics import METRICS


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """A kind of frame: what one row is, and the columns it may have.

    Attributes
    ----------
    one_row_per: What a row stands for.
    built_by: Name of the public function that builds it.
    built_from: The argument of that function.
    keys: Columns that together identify a row.
    columns: In the order of a frame.
    """

    one_row_per: str
    built_by: str
    keys: tuple[str, ...]
    columns: tuple[ColumnSchema, ...]
    built_from: str = "batch"

    def __getitem__(self, name: str) -> ColumnSchema:
        return next(column for column in self.columns if column.name == name)

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each column by its name, in the order of a frame."""
        return {column.name: column.dtype for column in self.columns}

    def require(self, present: Iterable[str], *names: str) -> None:
        """Raise unless all `names` are among the columns that are present."""
        columns = [str(name) for name in present]
        missing = [name for name in names if name not in columns]
        if missing:
            raise FrameError.build(
                expected=f"a frame with one row per {self.one_row_per} and the columns"
                f" {list(names)}",
                found=f"{columns}, without {missing}",
                advice=f"Build it with `rounddiag.{self.built_by}({self.built_from})`.",
            )


# An aggregate has one name and one meaning in every table: it is over the tokens of the
# row whose diff is finite.
_ROUND_MEANS = tuple(m.mean_column for m in METRICS.values() if m.in_rounds)
AGGREGATE_COLUMNS = (
    *_ROUND_MEANS[:2],
    nat("max_abs_diff", "largest |{a} − {b}| log-prob", "float64"),
    *_ROUND_MEANS[2:],
)

# On request: the position of a token, or NaN.
_FIRST_UNEQUAL = count(
    "first_unequal", "position of the first token that is not bitwise equal", "float64"
)

TOKENS = TableSchema(
    one_row_per="generated token",
    built_by="token_frame",
    keys=("sample", "round", "token"),
    columns=(
        SAMPLE,
        ROUND,
        TOKEN,
        DIFF,
        POSITION,
        ColumnSchema("token_id", "token id", "int32"),
        nat("rollout_log_prob", "log-prob by {sampling_engine}"),
        nat("old_log_prob", "log-prob by {training_engine}"),
        nat("entropy", "entropy of the training engine"),
        nat("surprise", "surprise (−log-prob)"),
        count("round_length", "generated tokens of the round", "float32"),
        ColumnSchema("round_seconds", "time of the round", "float32", unit="s"),
        ColumnSchema("round_reward", "reward of the step", "float32"),
        ColumnSchema(
            "round_change", "share of the picture that changed after it", "float32"
        ),
        ColumnSchema("round_advantage", "mean advantage of the round", "float32"),
        ColumnSchema("advantage", "advantage", "float32"),
        ColumnSchema("loss_mask", "1 where the loss counts it", "int8"),
        ColumnSchema("importance_weight", "{a} / {b} ratio", "float32"),
        ColumnSchema("prob_diff", "|{a} − {b}| probability", "float32"),
        ColumnSchema(
            "equal_so_far",
            "1 up to the first token of its sample that is not bitwise equal",
            "float32",
        ),
        ColumnSchema("role", "what the token is for", "category"),
        ColumnSchema("text", "text of the token", "str"),
        *(
            ColumnSchema(
                weight_column(correction),
                f"weight of the advantage: {correction.meaning}",
                "float32",
            )
            for correction in CORRECTIONS.values()
        ),
    ),
)

_OF_ROUNDS = (
    SAMPLE,
    ROUND,
    count("start", "position of the first token", "int32"),
    NUM_TOKENS,
    NUM_NONFINITE,
    *AGGREGATE_COLUMNS,
)
ROUNDS = TableSchema(
    one_row_per="sample and round",
    built_by="round_frame",
    keys=("sample", "round"),
    columns=(
        *_OF_ROUNDS,
        _FIRST_UNEQUAL,
        ColumnSchema("round_advantage", "mean advantage of the round", "float32"),
    ),
)

# The cells of a heatmap: rounds of samples, with more columns than `round_frame` has.
CELLS = TableSchema(
    one_row_per="sample and round",
    built_by="stats.cell_frame",
    keys=ROUNDS.keys,
    columns=(
        *_OF_ROUNDS,
        *(m.cell_column for m in METRICS.values() if not m.in_rounds),
        nat("p95_abs_diff", "95th percentile of |{a} − {b}| log-prob", "float64"),
    ),
)

SAMPLES = TableSchema(
    one_row_per="sample",
    built_by="sample_frame",
    keys=("sample",),
    columns=(
        SAMPLE,
        ColumnSchema("sample_id", "name of the sample", "str"),
        ColumnSchema("group_id", "group: samples of one prompt", "str"),
        ColumnSchema("reward", "reward"),
        NUM_ROUNDS,
        NUM_TOKENS,
        NUM_NONFINITE,
        *AGGREGATE_COLUMNS,
        _FIRST_UNEQUAL,
    ),
)

SUMMARY = TableSchema(
    one_row_per="round",
    built_by="round_summary",
    keys=("round",),
    columns=(
        ROUND,
        NUM_SAMPLES,
        NUM_TOKENS,
        NUM_NONFINITE,
        ColumnSchema(
            "share_zero", "share of finite tokens where the metric is exactly 0"
        ),
        ColumnSchema("share_nonfinite", "share of tokens whose diff is not finite"),
        ColumnSchema("mean", "mean of the metric"),
        ColumnSchema("ci_low", "lower end of the interval of the mean"),
        ColumnSchema("ci_high", "upper end of the interval of the mean"),
        ColumnSchema("p50", "median of the metric"),
        ColumnSchema("p90", "90th percentile of the metric"),
        ColumnSchema("p95", "95th percentile of the metric"),
        ColumnSchema("p99", "99th percentile of the metric"),
        ColumnSchema("max", "largest value of the metric"),
        IS_FEW,
        *_ROUND_MEANS,
        *(m.mean_column for m in METRICS.values() if m.in_summary and not m.in_rounds),
    ),
)

# The summary of a run, whose frames begin with the step.
RUN = TableSchema(
    one_row_per="step and round",
    built_by="open_run(folder).summary",
    built_from="",
    keys=("step", "round"),
    columns=(STEP, *SUMMARY.columns),
)

STEPS = TableSchema(
    one_row_per="step",
    built_by="open_run(folder).step_summary",
    built_from="",
    keys=("step",),
    columns=(
        STEP,
        count("num_samples", "samples"),
        NUM_ROUNDS,
        NUM_TOKENS,
        NUM_NONFINITE,
        *AGGREGATE_COLUMNS,
        ColumnSchema("reward", "mean reward"),
        nat("entropy", "mean entropy of the training engine", "float64"),
        ColumnSchema("length", "mean number of generated tokens per sample"),
        ColumnSchema(
            "weight_version",
            'version of the weights that sampled, such as "9" or "8 to 9"',
            "str",
        ),
        ColumnSchema(
            "weights",
            'whether the weights arrived: "as sent", or what is wrong; else empty',
            "str",
        ),
        ColumnSchema("facts", "facts of the run, as JSON", "str"),
    ),
)

CHANGES = TableSchema(
    one_row_per="change of a round",
    built_by="open_run(folder).changes",
    built_from="",
    keys=("step", "round"),
    columns=(
        STEP,
        ROUND,
        ColumnSchema("change", "`step` or `growth`", "str"),
        ColumnSchema("before", "typical mean of the metric before the step"),
        ColumnSchema("after", "typical mean of the metric from the step on"),
        ColumnSchema("p_value", "how often steps without order show as large a change"),
    ),
)

PLACE_MEANS = TableSchema(
    one_row_per="place",
    built_by="stats.means_by",
    keys=("place",),
    columns=(
        ColumnSchema("place", "round, first number of a bin, or number of a role"),
        ColumnSchema("label", "the place as text", "str"),
        count("num_samples", "samples with such tokens"),
        NUM_TOKENS,
        NUM_NONFINITE,
        ColumnSchema("mean", "mean of the metric"),
        ColumnSchema("ci_low", "lower end of the 95 % interval of the mean"),
        ColumnSchema("ci_high", "upper end of the 95 % interval of the mean"),
        IS_FEW,
    ),
)

GROUP_ROWS = TableSchema(
    one_row_per="group",
    built_by="groups",
    keys=("group_id",),
    columns=(
        ColumnSchema("group_id", "group: samples of one prompt", "str"),
        count("num_samples", "samples"),
        count("num_trajectories", "trajectories"),
        count("num_rows", "rows of the file"),
        count("num_prompts", "distinct prompts"),
        count("num_tokens", "tokens that the update uses"),
        ColumnSchema("mean_reward", "mean reward of samples"),
        ColumnSchema("std_reward", "standard deviation of their rewards"),
        ColumnSchema("min_advantage", "smallest advantage of a token"),
        ColumnSchema("max_advantage", "largest advantage of a token"),
        ColumnSchema("std_advantage", "standard deviation of samples' advantages"),
        ColumnSchema("gradient_share", "share of the batch's |advantage|"),
    ),
)

_SIZE = ColumnSchema("effective_sample_size", "effective sample size")
LEGS = TableSchema(
    one_row_per="value of a column and leg",
    built_by="legs",
    keys=("leg",),
    columns=(
        ColumnSchema("leg", "factor of the importance ratio", "str"),
        NUM_TOKENS,
        nat("mean_log_ratio", "mean log ratio", "float64"),
        nat("mean_abs_log_ratio", "mean |log ratio|", "float64"),
        nat("k3", "mean k3 of the log ratio", "float64"),
        _SIZE,
    ),
)
CORRECTION_ROWS = TableSchema(
    one_row_per="correction",
    built_by="corrections",
    keys=("correction",),
    columns=(
        ColumnSchema("correction", "name of the correction", "str"),
        NUM_TOKENS,
        count("num_left_out", "tokens whose weight is not finite"),
        ColumnSchema("tokens_kept", "share of tokens kept"),
        ColumnSchema("samples_kept", "share of samples kept"),
        ColumnSchema("share_at_limit", "share of tokens at the limit"),
        ColumnSchema("mean_weight", "mean weight"),
        ColumnSchema("max_weight", "largest weight"),
        _SIZE,
        ColumnSchema("gradient_share", "share of the step's |advantage x weight|"),
        ColumnSchema("gradient_kept", "|advantage x weight| over |advantage|"),
        ColumnSchema("cosine", "cosine with the step without correction"),
        ColumnSchema("moved", "how far the step moves, over its size"),
        ColumnSchema("bias_left", "bias that is left"),
    ),
)

_EDGES = ("x0", "y0", "x1", "y1")  # left, top, right, lower
LISTED = 10  # likely tokens of a place
_asked = partial(TableSchema, built_by="ask", built_from="batch, model")
ALTERNATIVES = _asked(
    one_row_per="token that a model could have written, and place",
    keys=(*TOKENS.keys, "hypothesis", "rank"),
    columns=(
        *(SAMPLE, ROUND, TOKEN),
        count("rank", "rank among all tokens, from 1; -1 is unknown", "int32"),
        *(TOKENS["token_id"], TOKENS["text"]),
        nat("log_prob", "log-prob by the model", "float64"),
        ColumnSchema("hypothesis", "what the model read instead; empty: as is", "str"),
        ColumnSchema("is_sampled", "whether it is the token of the batch", "bool"),
        nat("kl", "KL(sampling || training) at the place", "float64"),
    ),
)
SIGHT = _asked(
    one_row_per="generated token",
    keys=TOKENS.keys,
    columns=(
        *(SAMPLE, ROUND, TOKEN),
        ColumnSchema("role", "what the token is for", "str"),
        ALTERNATIVES["log_prob"],
        nat("log_prob_blind", "log-prob without the picture", "float64"),
        nat("drop", "log-prob that is lost without the picture", "float64"),
        nat("noise", "difference of log-probs with equal pixels", "float64"),
    ),
)
TILES = _asked(
    one_row_per="tile of a picture",
    keys=("sample", "round", "x0", "y0", "x1", "y1"),
    columns=(
        *(SAMPLE, ROUND),
        count("picture", "picture of the sample", "int32"),
        *(count(name, "edge of the tile in pixels", "int32") for name in _EDGES),
        nat("drop", "mean log-prob that is lost without the tile", "float64"),
        ColumnSchema("is_divided", "whether quarters of it are rows too", "bool"),
    ),
)
