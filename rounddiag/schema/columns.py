"""Columns of frames (name, dtype, unit, meaning), and the pair of scores in labels."""

from __future__ import annotations

from dataclasses import dataclass, field

# The unit of lengths; of texts without tokens it is the word.
LENGTH_UNIT = "token"


@dataclass(frozen=True)
class ColumnSchema:
    """A column: its name, and what it holds.

    Attributes
    ----------
    name: In every frame.
    meaning: One line for axes, hover texts and tables: a template of `Pair.fill`.
    dtype: In a frame built by this package.
    unit: Empty if there is none.
    """

    name: str
    meaning: str
    dtype: str = "float64"
    unit: str = ""

    @property
    def label(self) -> str:
        """Meaning with its unit, for an axis, in the words of the standard pair.

        Examples
        --------
        >>> nat("diff", "{a} − {b} log-prob").label
        'old − rollout log-prob [nat]'
        """
        return Pair().label(self)


# Template fields of `Pair.named` that name the engines of the standard pair.
_ENGINES = {
    "training": "training",
    "training_engine": "the training engine",
    "sampling_engine": "the sampling engine",
}


@dataclass(frozen=True)
class Pair:
    """The scores `a` and `b` that are compared; every difference is `a - b`.

    Attributes
    ----------
    a, b: Names of scores. By default those of the training engine (`old`) and of the
        sampling engine (`rollout`).
    token: What a token is called: "word" where texts have no tokens.
    """

    a: str = "old"
    b: str = "rollout"
    token: str = field(default=LENGTH_UNIT, compare=False)

    @property
    def is_standard(self) -> bool:
        """Whether these are the two scores that every batch has."""
        return self == Pair()

    def fill(self, template: str) -> str:
        """Fill the names of the scores into a template.

        Examples
        --------
        >>> Pair("current", "rollout").fill("|{a} − {b}| log-prob [nat]")
        '|current − rollout| log-prob [nat]'
        >>> Pair().fill("log-prob by {sampling_engine}")
        'log-prob by the sampling engine'
        >>> Pair("ref", "old").fill("log-prob by {sampling_engine}")
        'log-prob by old'
        """
        engines = _ENGINES
        if not self.is_standard:
            engines = {
                "training": self.a,
                "training_engine": self.a,
                "sampling_engine": self.b,
            }
        return template.format(a=self.a, b=self.b, token=self.token, **engines)

    def label(self, column: ColumnSchema) -> str:
        """Return a column's label with these names.

        Examples
        --------
        >>> Pair("current", "rollout").label(DIFF)
        'current − rollout log-prob [nat]'
        """
        meaning, unit = self.fill(column.meaning), self.unit(column)
        return f"{meaning} [{unit}]" if unit else meaning

    def unit(self, column: ColumnSchema) -> str:
        """Return a column's unit, in which a token has its name.

        Examples
        --------
        >>> length = ColumnSchema("round_length", "mean length", unit="token")
        >>> Pair(token="word").unit(length), Pair().unit(DIFF)
        ('word', 'nat')
        """
        return self.token if column.unit == LENGTH_UNIT else column.unit


def nat(name: str, meaning: str, dtype: str = "float32") -> ColumnSchema:
    """Describe a column in nats."""
    return ColumnSchema(name, meaning, dtype, "nat")


def count(name: str, meaning: str, dtype: str = "int64") -> ColumnSchema:
    """Describe a column of counts."""
    return ColumnSchema(name, meaning, dtype)


STEP = count("step", "training step")
SAMPLE = count("sample", "sample", "int32")
ROUND = count("round", "round", "int32")
TOKEN = count("token", "token in its round", "int32")
DIFF = nat("diff", "{a} − {b} log-prob")
ABS_DIFF = nat("abs_diff", "|{a} − {b}| log-prob")
POSITION = count("position", "position in the response", "int32")
OPENED_WITH = "opened_with"  # an entry of `meta`: the options of `load`
ORIGINAL_SAMPLE = count("original_sample", "sample in the batch selected from")
NUM_TOKENS = count("num_tokens", "generated {token}s")
NUM_NONFINITE = count("num_nonfinite", "tokens whose diff is not finite")
NUM_ROUNDS = count("num_rounds", "rounds")
NUM_SAMPLES = count("num_samples", "samples that reach the round")
IS_FEW = ColumnSchema(
    "is_few", "fewer than 5 samples, or groups where groups are drawn", "bool"
)

IS_REWRITTEN = ColumnSchema(
    "is_rewritten", "the context does not append to the one before", "bool"
)
# Columns of the rounds of a batch that was joined from rows with contexts of their own.
CONTEXT_COLUMNS = (
    count("num_context_tokens", "tokens in the context of the round"),
    count("num_context_images", "screenshots in the context of the round"),
    count("num_entered_tokens", "tokens that entered the context"),
    count("num_left_tokens", "tokens that left the context"),
    count("num_left_images", "screenshots that left the context"),
    IS_REWRITTEN,
)

# What files record of a round, or of a sample, under names of their own.
STATUS = ColumnSchema("status", "how it ended, as the file says", "object")
SECONDS = ColumnSchema("seconds", "time that it took", unit="s")
NUM_GENERATED = ColumnSchema("num_generated", "generated tokens, as the file counts")
COST = ColumnSchema("cost", "price of the calls of the model", unit="USD")
ERROR = ColumnSchema("error", "what failed", "object")
OUTCOME = (STATUS, SECONDS, NUM_GENERATED, COST, ERROR)

# The axes of `stats.means_by` that count tokens or screenshots.
PLACES = {
    "token": TOKEN,
    "position": POSITION,
    "end": count("end", "tokens to the end of the round"),
    "image": count("image", "tokens since the last screenshot began"),
    "images": count("images", "screenshots seen so far"),
    "context": count("context", "tokens before it, prompt and response"),
}

# Axes of figures that are in no frame of tokens.
ROLLOUT_PROB = ColumnSchema(
    "rollout_prob", "probability by {sampling_engine}", "float32"
)
OLD_PROB = ColumnSchema("old_prob", "probability by {training_engine}", "float32")
SHARE = ColumnSchema("share", "share of tokens at or beyond")
