"""The tokens of a batch as plain numpy arrays, computed once for all detectors."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.aggregation import means_of_sums, run_sums
from rounddiag.core.columns import sample_clusters, to_numpy
from rounddiag.core.images_seen import images_before
from rounddiag.core.measured import Measured
from rounddiag.core.sums import take_runs
from rounddiag.findings.bins import codes_like, distinct
from rounddiag.findings.reference import REFERENCE, Range

# Tokens that are judged. In a longer batch, evenly spaced blocks of consecutive tokens
# of each round are, and the diagnosis says so.
MAX_TOKENS = 2_000_000
_BLOCK = 256  # tokens
# A token with screenshots is shown before the largest |diff| if it has this part of it.
_TIED = 0.5
CERTAIN = -1e-3  # nats: 99.9 % likely
# Nats by which float32 rounds a log-prob of -10. Smaller means count as 0.
ROUNDING = 1e-6
# Nats, a factor of 20 in probability. Larger diffs count as this in means that compare
# places, or few tokens would decide them.
LARGEST_DIFF = 3.0


@dataclass(frozen=True, eq=False, kw_only=True)
class View:
    """The data that detectors read: one array entry per finite generated token.

    Attributes
    ----------
    a, b: The scores that are compared.
    log_prob_a, log_prob_b: float64 arrays. Log-probs by `a` (the training engine) and
        `b` (the sampling engine), in nats.
    sample, token, token_id: Arrays of whole numbers. Where the token is, and its id.
    segment: int64 array. Index of the token's round in `batch.rounds`.
    entropy: float64 array or None. Entropy of the training engine, in nats.
    images: int64 array or None. Number of images in the context before the token.
    is_fitted: Whether a fitted effect was removed from `diff`. No fit is exact.
    num_nonfinite: Generated tokens that were left out because a log-prob is NaN or
        infinite.
    is_thinned: Whether a long batch was reduced to `MAX_TOKENS`.
    usual: What is usual for the kind of run and tokens that are this likely.
    memo: Results that detectors share, by name.
    """

    batch: Batch
    a: str = "old"
    b: str = "rollout"
    log_prob_a: Array
    log_prob_b: Array
    sample: Array
    token: Array
    token_id: Array
    segment: Array
    entropy: Array | None = None
    images: Array | None = None
    is_fitted: bool = False
    num_nonfinite: int = 0
    is_thinned: bool = False
    usual: Range = field(default_factory=lambda: REFERENCE["dense"])
    facts: Facts = field(repr=False)
    memo: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_batch(
        cls,
        batch: Batch,
        a: str = "old",
        b: str = "rollout",
        usual: Range | None = None,
    ) -> View:
        """Read the generated tokens of a batch; none is kept without both engines."""
        rounds = batch.rounds
        owner, begin, size, is_thinned = _blocks(to_numpy(rounds.num_tokens))
        start = to_numpy(rounds.start)[owner] + begin
        segment = np.repeat(owner, size)
        first = np.cumsum(size) - size

        def take(values: Any) -> Array:  # noqa: ANN401 a tensor: torch stays below
            return take_runs(to_numpy(values.detach()), start, size)

        def take_float(values: Any) -> Array:  # noqa: ANN401
            # float32 values, as engines compute them, as float64.
            return take(values).astype(np.float32, copy=False).astype(float)

        log_prob_a = log_prob_b = np.full(len(segment), np.nan)
        if not lacks_engine(batch, a, b):
            chosen = Measured.of(batch, a, b).require_batch()
            log_prob_a, log_prob_b = map(take_float, chosen.both_log_probs())
        facts, ids = Facts.from_batch(batch), batch.response_ids
        view = cls(
            batch=batch,
            a=a,
            b=b,
            log_prob_a=log_prob_a,
            log_prob_b=log_prob_b,
            sample=to_numpy(rounds.sample)[segment],
            token=np.arange(len(segment)) - np.repeat(first - begin, size),
            # Without ids all are one, which no detector takes for a pattern.
            token_id=np.zeros_like(segment)
            if ids is None
            else take(ids).astype(np.int64, copy=False),
            segment=segment,
            entropy=None if batch.entropy is None else take_float(batch.entropy),
            is_thinned=is_thinned,
            facts=facts,
        )
        view = replace(view, images=images_before(batch, segment, view.position))
        finite = np.isfinite(view.log_prob_a) & np.isfinite(view.log_prob_b)
        num_nonfinite = int((~finite).sum())
        usual = (usual or REFERENCE["dense"]).for_tokens(view.log_prob_b[finite])
        return replace(view.keep(finite), num_nonfinite=num_nonfinite, usual=usual)

    def __len__(self) -> int:
        return len(self.log_prob_a)

    def keep(self, tokens: Array) -> View:
        """Return the view of the tokens that a boolean array selects."""
        if tokens.all():
            return self
        parts: dict[str, Any] = {
            entry.name: value[tokens]
            for entry in fields(self)
            if isinstance(value := getattr(self, entry.name), np.ndarray)
        }
        return replace(self, **parts, memo={})

    def without(self, effect: Array) -> View:
        """Return the view with a fitted part of `diff` subtracted from `log_prob_a`."""
        return replace(
            self, log_prob_a=self.log_prob_a - effect, is_fitted=True, memo={}
        )

    @property
    def round(self) -> Array:
        """The round of each token."""
        return to_numpy(self.batch.rounds.round)[self.segment]

    @property
    def flat(self) -> Array:
        """The index of each token in the batch's flat per-token tensors."""
        return to_numpy(self.batch.rounds.start)[self.segment] + self.token

    @property
    def position(self) -> Array:
        """The position of each token in the response."""
        rounds, offsets = self.batch.rounds, to_numpy(self.batch.offsets)
        start = to_numpy(rounds.start) - offsets[to_numpy(rounds.sample)]
        return start[self.segment] + self.token

    @property
    def has_images(self) -> bool:
        """Whether some tokens are known to have images in their context."""
        return self.images is not None and bool((self.images > 0).any())

    @property
    def cluster(self) -> Array:
        """The unit of evidence of each token: its group, or its sample without two."""
        owner = self.cluster_of_sample
        return self.sample if owner is None else owner[self.sample]

    @property
    def cluster_of_sample(self) -> Array | None:
        """The group of each sample; None without two groups."""
        group = self.facts.group
        if group is None or len(np.unique(group[self.num_per_sample > 0])) <= 1:
            return None
        return group

    @cached_property
    def diff(self) -> Array:
        """`log_prob_a - log_prob_b`, in nats."""
        return self.log_prob_a - self.log_prob_b

    @cached_property
    def abs_diff(self) -> Array:
        """`|diff|`, in nats."""
        return np.abs(self.diff)

    @cached_property
    def distinct_ids(self) -> tuple[Array, Array]:
        """The distinct ids, sorted, and which of them each token has."""
        return distinct(self.token_id)

    @cached_property
    def bin(self) -> Array:
        """Each token's bin of `log_prob_b`; the bins have about as many tokens each."""
        codes, _ = codes_like(self.log_prob_b, self.log_prob_b)
        is_used = np.bincount(codes) > 0
        return (np.cumsum(is_used) - 1).astype(np.uint8)[codes]

    def of_equally_likely(self, values: Array) -> Array:
        """Return for each token the mean of the values of its bin."""
        mean = np.bincount(self.bin, weights=values) / np.bincount(self.bin)
        return mean[self.bin]

    @cached_property
    def order(self) -> Array:
        """The index of each token among all generated tokens of the batch."""
        num = to_numpy(self.batch.rounds.num_tokens)
        return (np.cumsum(num) - num)[self.segment] + self.token

    @cached_property
    def num_before(self) -> Array:
        """How many tokens were generated before each token, in its sample."""
        num, owner = self.batch.rounds.num_tokens, self.batch.rounds.sample
        of_samples = np.bincount(to_numpy(owner), num, self.batch.num_samples)
        begins = (np.cumsum(of_samples) - of_samples).astype(np.int64)
        return self.order - begins[self.sample]

    @cached_property
    def uncertain(self) -> Array:
        """Tokens that either engine finds less than 99.9 % likely."""
        return np.minimum(self.log_prob_a, self.log_prob_b) < CERTAIN

    def worst(self, tokens: Array) -> int:
        """Return the index of the token to look at first of some tokens."""
        size, sample = self.abs_diff[tokens], self.sample[tokens]
        return int(tokens[most_to_see(size, sample, self.batch)])

    def samples_with(self, tokens: Array) -> Array:
        """Return which samples have some of these tokens; a bool array."""
        inside = np.zeros(self.batch.num_samples, dtype=bool)
        inside[self.sample[tokens]] = True
        return inside

    def per_sample(self, values: Array) -> Array:
        """Return the mean of per-token values for each sample, NaN without a token."""
        num = self.num_per_sample
        return means_of_sums(run_sums(values, num), num)

    def sums_of(self, tokens: Array, *values: Array) -> Array:
        """Return the number of some tokens by sample, and sums of their values.

        A row each.
        """
        num = run_sums(tokens, self.num_per_sample).astype(np.int64)
        return np.array([num, *(run_sums(each, num) for each in values)])

    @property
    def num_samples(self) -> int:
        """Number of samples that have tokens."""
        return int((self.num_per_sample > 0).sum())

    @cached_property
    def num_per_sample(self) -> Array:
        """Number of tokens of each sample."""
        return np.bincount(self.sample, minlength=self.batch.num_samples)


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """What is known of the samples of a batch, and what detectors share.

    Attributes
    ----------
    group: int64 array or None. Code of each sample's group.
    prompt: int64 array. Code of each sample's prompt: its group, else equal prompt ids.
    prompt_length: int64 array or None
    memo: Results that detectors share for the whole batch, by name.
    """

    group: Array | None
    prompt: Array
    prompt_length: Array | None
    memo: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_batch(cls, batch: Batch) -> Facts:
        """Read the columns of a batch."""
        group = None if batch.group_ids is None else sample_clusters(batch)
        prompt, prompt_length = np.arange(batch.num_samples), None
        if batch.prompt_offsets is not None and batch.prompt_ids is not None:
            offsets, ids = to_numpy(batch.prompt_offsets), to_numpy(batch.prompt_ids)
            prompt_length = np.diff(offsets)
            texts = [ids[a:b].tobytes() for a, b in pairwise(offsets)]
            prompt = np.unique(np.array(texts, dtype=object), return_inverse=True)[1]
        return cls(
            group=group,
            prompt=prompt if group is None else group,
            prompt_length=prompt_length,
        )


def most_to_see(size: Array, sample: Array, batch: Batch) -> int:
    """Return which size is the largest.

    Of those with at least half of it, one of a sample with screenshots comes first.
    """
    known = np.nan_to_num(size, nan=-1.0)
    if batch.images is not None:
        has_shots = np.array([bool(shots) for shots in batch.images])[sample]
        is_tied = has_shots & (known >= _TIED * known.max())
        known = np.where(is_tied, known, -2.0) if is_tied.any() else known
    return int(np.argmax(known))


def lacks_engine(batch: Batch, a: str, b: str) -> str | None:
    """Return the sentence of a batch that lacks the log-probs of an engine."""
    return batch.lacks(*(score for score in (a, b) if score in ("old", "rollout")))


def _blocks(num: Array) -> tuple[Array, Array, Array, bool]:
    """Return round, first token and size of each block of tokens to read.

    And whether some are left out.
    """
    total = int(num.sum())
    if total <= MAX_TOKENS:
        return np.arange(len(num)), np.zeros_like(num), num, False
    # One block of tokens in `every`, with a random first block in each round: a pattern
    # would leave out the same rounds of all samples.
    every = -(-total // MAX_TOKENS)
    blocks = -(-num // _BLOCK)
    owner = np.repeat(np.arange(len(num)), blocks)
    block = np.arange(len(owner)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    first = np.random.default_rng(0).integers(every, size=len(num))
    chosen = (block + first[owner]) % every == 0
    owner, begin = owner[chosen], block[chosen] * _BLOCK
    return owner, begin, np.minimum(_BLOCK, num[owner] - begin), True
