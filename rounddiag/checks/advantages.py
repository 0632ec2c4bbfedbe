"""Advantages and groups: whether an update learns what the rewards say."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
import torch

from rounddiag.batch.left_out import left_out_of
from rounddiag.checks.contracts import (
    Contract,
    Fault,
    UntestableError,
    fault_in,
    require_tokens,
)
from rounddiag.checks.estimators import find_estimator
from rounddiag.checks.images import image_token
from rounddiag.columns.column import is_unknown
from rounddiag.core.groups import GroupedSamples, prompt_hashes
from rounddiag.schema import ORIGINAL_SAMPLE
from rounddiag.wording import join_names, percent, pluralize, with_minus

if TYPE_CHECKING:
    from torch import Tensor

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.checks.estimators import EstimatorMatch


_UPDATE = partial(Contract, kind="update")


def _trained(batch: Batch) -> tuple[Tensor, Tensor]:
    require_tokens(batch)
    if batch.advantages is None:
        raise UntestableError(field="advantages")
    trained = batch.response_mask != 0
    if batch.loss_mask is not None:
        trained &= batch.loss_mask != 0
    index = trained.nonzero()[:, 0]
    return index, batch.advantages[index]


def _last_round_only(batch: Batch) -> Fault | None:
    index, advantages = _trained(batch)
    rounds = batch.rounds
    owner = torch.searchsorted(rounds.start, index, right=True) - 1
    num_trained = owner.bincount(minlength=len(rounds))
    num_used = owner[advantages != 0].bincount(minlength=len(rounds))
    known = num_trained > 0
    sample, used = rounds.sample[known], num_used[known] > 0
    num_rounds = sample.bincount(minlength=batch.num_samples)
    is_last = torch.ones_like(used)
    is_last[:-1] = sample[1:] != sample[:-1]
    reached = sample[is_last & used].bincount(minlength=batch.num_samples) > 0
    earlier = sample[~is_last & used].bincount(minlength=batch.num_samples) > 0
    several = (num_rounds > 1) & (reached | earlier)
    alone = several & ~earlier
    # The advantage of one round may be 0; that of all rounds but the last is a rule.
    if 2 * int(alone.sum()) <= int(several.sum()):
        return None
    rows = alone.nonzero()[:, 0].tolist()
    fault = fault_in(rows, "in which the advantage is 0 in all rounds but the last")
    lost = index[(advantages == 0) & alone[rounds.sample[owner]]]
    return fault and Fault(
        f"{fault.detail}; {pluralize(len(lost), 'trained token')} without an advantage",
        fault.samples,
        lost,
    )


ADVANTAGES_REACH = _UPDATE(
    "advantages reach the earlier rounds",
    "advantages",
    _last_round_only,
    effect="the earlier rounds are not trained",
    cause="lost_advantages",
    advice="Broadcast the advantage of a trajectory to the tokens of all its rounds.",
)


def _unread_rewards(batch: Batch) -> Fault | None:
    if batch.rewards is not None and not batch.rewards.isnan().all():
        return None
    names = {"reward", "rewards"}
    given = [
        value
        for name in names & {*batch.sample_columns}
        for value in batch.sample_columns[name]
        if not is_unknown(value)
    ]
    if given:
        return Fault(
            f"none of {pluralize(len(given), 'reward')} is a number: the first is"
            f" {given[0]!r:.40}"
        )
    if left := names & {*left_out_of(batch)}:
        return Fault(f"`{min(left)}` of the file is left out: not one number a sample")
    raise UntestableError(field="rewards")


REWARDS_READ = Contract(
    "rewards are numbers",
    "rewards",
    _unread_rewards,
    effect="outcomes, groups and advantages are not judged",
    advice="Save one number for each trajectory.",
)


def _all_zero(batch: Batch) -> Fault | None:
    _, advantages = _trained(batch)
    if not len(advantages) or (advantages != 0).any():
        return None
    if batch.rewards is None:
        raise UntestableError(
            field="rewards",
            why=f"`advantages` are 0 at all {pluralize(len(advantages), 'token')};"
            " `rewards` would say whether that is right",
        )
    _refuse_guessed_groups(batch)
    rewards = batch.rewards.double().cpu().numpy()
    groups = np.array(batch.group_ids or [""] * batch.num_samples)
    differing = [
        name
        for name in np.unique(groups)
        if len(np.unique(rewards[groups == name][~np.isnan(rewards[groups == name])]))
        > 1
    ]
    if not differing:
        return None
    samples = np.flatnonzero(np.isin(groups, differing)).tolist()
    where = pluralize(len(differing), "group") if batch.group_ids else "the batch"
    return Fault(
        f"advantages are 0 at all {pluralize(len(advantages), 'trained token')}, and"
        f" the rewards of {where} differ: sample {samples[0]} has"
        f" {with_minus(f'{rewards[samples[0]]:g}')}",
        tuple(samples),
    )


ADVANTAGES_DIFFER = _UPDATE(
    "advantages are not 0 where rewards differ",
    "advantages",
    _all_zero,
    effect="nothing is learned from the rewards",
    cause="zero_advantages",
    advice="Compare the rewards that the estimator of advantages was given.",
)


# "Hundreds of times": a hundred or more.
_HUNDREDS = 100


def _outliers(batch: Batch) -> Fault | None:
    """Find advantages that no other comes near, and whose rewards are not as far off.

    Without rewards or groups of the file, they must be larger than any number can be
    after standardisation: (n - 1) / sqrt(n) of n (Samuelson, 1968).
    """
    index, advantages = _trained(batch)
    lost = index[~advantages.isfinite()]
    if len(lost):
        owner = torch.searchsorted(batch.offsets, lost, right=True) - 1
        rows = owner.unique().tolist()
        fault = fault_in(rows, "with advantages that are NaN or infinite")
        return fault and Fault(fault.detail, fault.samples, lost)
    samples = GroupedSamples.of(batch)
    size = np.nan_to_num(np.fmax(np.abs(samples.low), np.abs(samples.high)))
    order = size.argsort()
    order = order[size[order] > 0]
    gaps = np.flatnonzero(size[order[1:]] >= _HUNDREDS * size[order[:-1]])
    if not len(gaps) or 2 * (gaps[-1] + 1) < len(order):
        return None
    rest, far = order[: gaps[-1] + 1], np.sort(order[gaps[-1] + 1 :])
    num, ratio = len(batch), size[far].min() / size[rest].max()
    if np.isnan(samples.reward).any() or "group_source" in batch.meta:
        is_explained = size[far].min() <= (num - 1) / np.sqrt(num)
    else:
        away = _deviations(samples)
        is_explained = ratio * away[rest].max() < _HUNDREDS * away[far].min()
    if is_explained or _is_of_one_scale(batch):
        return None
    names = join_names(far.tolist())
    highest = max(samples.low[far[0]], samples.high[far[0]], key=abs)
    own = (
        f"sample {names} has an advantage of {with_minus(f'{highest:,.4g}')}"
        if len(far) == 1
        else f"samples {names} have advantages from {size[far].min():,.4g} on"
    )
    return Fault(
        f"{own}, the others have {size[rest].max():,.3g} at most",
        tuple(far.tolist()),
        index[advantages.abs() >= size[far].min()],
    )


def _is_of_one_scale(batch: Batch) -> bool:
    """Return whether a known estimator divides all by one number: none is inflated."""
    with suppress(UntestableError):
        match = _estimated(batch)[1]
        return match is not None and match.estimator.scale != "group"
    return False


def _deviations(samples: GroupedSamples) -> Array:
    """Return how far each reward is from the mean of its group; alone, of all."""
    num = np.bincount(samples.group)
    mean = np.bincount(samples.group, samples.reward) / num
    is_alone = num[samples.group] == 1
    mean_of_sample = np.where(is_alone, samples.reward.mean(), mean[samples.group])
    return np.abs(samples.reward - mean_of_sample)


NO_OUTLIER = _UPDATE(
    "no advantage is hundreds of times the others",
    "advantages",
    _outliers,
    effect="the other samples hardly count in the step",
    cause="outlier_advantages",
    advice="Look at the standard deviation that the rewards were divided by: of equal"
    " rewards it is a rounding error. Leave such groups out, or divide by at least a"
    " fixed number.",
)


def _alone(batch: Batch) -> Fault | None:
    samples = _grouped(batch)
    if batch.prompt_ids is None:
        raise UntestableError(field="prompt_ids")
    # Rows that are steps begin with other prompts than their trajectory.
    first = np.unique(samples.trajectory, return_index=True)[1]
    group = samples.group[first]
    is_alone = np.bincount(group)[group] == 1
    if not is_alone.any():
        return None
    prompts = [*map(prompt_hashes(batch), first.tolist())]
    repeated = _are_repeated(prompts)
    if (repeated & is_alone).any():
        repeated = _are_repeated(_with_pictures(batch, first, prompts))
    rows = first[repeated & is_alone].tolist()
    # A prompt can be drawn twice; that most of them are is a rule.
    if 2 * len(rows) <= is_alone.sum():
        return None
    with suppress(UntestableError):
        match = _estimated(batch)[1]
        if match is not None and match.estimator.baseline == "none":
            return None  # it has no use for groups
    return fault_in(rows, "alone in their group, with a prompt that others have")


def _are_repeated(prompts: list[bytes]) -> Array:
    times = Counter(prompts)
    return np.array([times[prompt] > 1 for prompt in prompts])


_BY_CHANCE = 0.01  # batches whose prompts are drawn so, of all


def _with_pictures(batch: Batch, rows: Array, prompts: list[bytes]) -> list[bytes]:
    """Return prompts with their pictures, which their ids do not tell.

    Where a sample has none, prompts must have m, 2 m, 3 m ... samples, as where m of
    each were sampled. At random, k prompts do so in about one of m^(k - 1) batches.
    """
    pictures = [] if batch.images is None else [batch.images[i] for i in rows.tolist()]
    if pictures and all(pictures):  # a Recorder keeps those of some samples
        return [
            ids + b"".join(shot.png() for shot in shots if not shot.round)
            for ids, shots in zip(prompts, pictures, strict=True)
        ]
    token = None
    with suppress(UntestableError):
        token = image_token(batch)
    times = [*Counter(prompts).values()]
    is_even = float(gcd(*times)) ** (1 - len(times)) < _BY_CHANCE
    if token is None or batch.prompt_ids is None or is_even:
        return prompts
    if (batch.prompt_ids == token).any():
        why = "prompts of equal ids may show pictures that are not in the file"
        raise UntestableError(field="images", why=why)
    return prompts


SHARED_GROUPS = _UPDATE(
    "samples of one prompt share a group",
    "group_ids",
    _alone,
    effect="samples are compared with no other",
    cause="split_groups",
    advice="Give all samples of a prompt one group: a name per prompt, not per sample.",
)


def _grouped(batch: Batch) -> GroupedSamples:
    require_tokens(batch)
    if batch.group_ids is None:
        raise UntestableError(field="group_ids")
    _refuse_guessed_groups(batch)
    return GroupedSamples.of(batch)


def _refuse_guessed_groups(batch: Batch) -> None:
    """Raise if a loader made the groups: two tasks can have the same instruction."""
    if source := batch.meta.get("group_source"):
        why = f"no groups in the file: those of this batch are {source}"
        raise UntestableError(field="group_ids", why=why)


def _estimated(batch: Batch) -> tuple[GroupedSamples, EstimatorMatch | None]:
    for field in ("advantages", "rewards"):
        if getattr(batch, field) is None:
            raise UntestableError(field=field)
    samples = _grouped(batch)
    # NaN without a trained token.
    if (samples.low < samples.high).any():
        why = "advantages differ within samples, as those of GAE do"
        raise UntestableError(field="estimator", why=why)
    if np.isnan(samples.reward).any():
        raise UntestableError(field="rewards", why="some rewards are not known")
    return samples, find_estimator(samples, samples.low, _precision(batch))


def _precision(batch: Batch) -> float:
    """Return the relative spacing of advantages, of float32 at least."""
    advantages = batch.advantages
    dtype = torch.float32 if advantages is None else advantages.dtype
    return max(torch.finfo(kind).eps for kind in (dtype, torch.float32))


def _slipped(batch: Batch) -> Fault | None:
    samples, match = _estimated(batch)
    if match is None:
        why = "no known estimator gives these advantages from these rewards"
        raise UntestableError(field="estimator", why=why)
    if not match.slip:
        return None
    off = np.nan_to_num(np.abs(samples.low - match.sound))
    worst = int(off.argmax())
    values = f"{samples.low[worst]:.3g}, and {match.sound[worst]:.3g} without that"
    return Fault(
        f"they are those of {match.estimator.name}, {match.slip}; sample {worst} has"
        f" {with_minus(values)}",
        tuple(np.flatnonzero(samples.num_tokens > 0).tolist()),
    )


KNOWN_ESTIMATOR = _UPDATE(
    "advantages are those of a known estimator",
    "advantages",
    _slipped,
    effect="advantages differ from their estimator's formula",
    cause="slipped_advantages",
    advice="If the trainer was set to do it, as by `adv_norm` of AReaL or"
    " `--normalize-advantages` of slime, nothing is wrong. Otherwise take the"
    " statistics once, and over trajectories: their rows are no samples of their own.",
)


def _uneven(batch: Batch) -> Fault | None:
    samples = _grouped(batch)
    facts, dropped = batch.meta.get("capture"), batch.meta.get("num_dropped_rows")
    is_part = isinstance(facts, dict) and "num_saved" in facts
    if is_part or (ORIGINAL_SAMPLE.name in batch.sample_columns and not dropped):
        why = "these samples are a selection of a batch"
        raise UntestableError(field="group_ids", why=why)
    pairs = np.unique(np.c_[samples.group, samples.trajectory], axis=0)
    sizes = np.bincount(pairs[:, 0])
    distinct, times = np.unique(sizes, return_counts=True)
    num_usual = times.max(initial=0)
    usual = distinct[times == num_usual].max(initial=0)
    is_usual = num_usual > 1 and 2 * num_usual >= len(sizes)
    if usual <= 1 or not is_usual or len(distinct) == 1:
        return None
    counts = [
        f"{pluralize(number, 'group')} of {pluralize(size, 'sample')}"
        for size, number in zip(distinct.tolist(), times.tolist(), strict=True)
    ]
    first = samples.names[int(np.flatnonzero(sizes != usual)[0])]
    return Fault(
        f"{join_names(counts)}: the first of another size than {usual:,} is {first}",
        tuple(np.flatnonzero(sizes[samples.group] != usual).tolist()),
    )


EVEN_GROUPS = Contract(
    "groups are of one size",
    "group_ids",
    _uneven,
    effect="groups differ in size",
    advice="Look for samples that a filter, a time-out or a failed request dropped.",
)


def _gradient_of_equal(batch: Batch) -> Fault | None:
    """Find groups of equal rewards with advantages, where each group has its baseline.

    That is where the advantages of groups with other means sum to 0: a baseline of the
    whole batch leaves a gradient in groups of equal rewards, and is no fault.
    """
    samples, match = _estimated(batch)
    if match is not None:
        return None
    lowest, highest = np.full((2, len(samples.names)), [[np.inf], [-np.inf]])
    np.minimum.at(lowest, samples.group, samples.reward)
    np.maximum.at(highest, samples.group, samples.reward)
    num = np.bincount(samples.group)
    is_equal = lowest == highest
    others = (num > 1) & ~is_equal
    balanced = others & _is_balanced(batch, samples, np.ones(len(batch)))
    means = (np.bincount(samples.group, samples.reward) / num)[balanced]
    if 2 * len(means) <= others.sum() or len(np.unique(means)) == 1:
        return None
    weight = np.nan_to_num(samples.weight)
    inside = ((num > 1) & is_equal)[samples.group] & (weight > 0)
    if not inside.any():
        return None
    equal = pluralize(len(np.unique(samples.group[inside])), "group")
    share = weight[inside].sum() / weight.sum()
    return Fault(
        f"{equal} of equal rewards with advantages other than 0, {percent(share)} of"
        " the gradient weight",
        tuple(np.flatnonzero(inside).tolist()),
    )


def _is_balanced(batch: Batch, samples: GroupedSamples, weight: Array) -> Array:
    """Return for each group whether advantages, weighted, sum to 0 up to rounding."""
    advantages = np.nan_to_num(samples.mean)
    sums, sizes = (
        np.bincount(samples.group, weight * values)
        for values in (advantages, np.abs(advantages))
    )
    limit = np.bincount(samples.group) * _precision(batch) * sizes
    return np.abs(sums) <= limit


NO_GRADIENT = Contract(
    "groups of equal rewards have no gradient",
    "advantages",
    _gradient_of_equal,
    effect="groups that teach nothing are trained",
    advice="Compare what was subtracted from the rewards of these groups.",
)


def _unbalanced(batch: Batch) -> Fault | None:
    """Find advantages that sum to 0 over the rows of groups, not over trajectories."""
    samples, match = _estimated(batch)
    siblings = np.bincount(samples.trajectory)[samples.trajectory]
    num_rows, num = int(samples.num_rows.sum()), len(np.unique(samples.trajectory))
    if match is not None or num_rows == num:
        return None
    by_rows = _is_balanced(batch, samples, samples.num_rows)
    by_trajectories = _is_balanced(batch, samples, 1 / siblings)
    off = by_rows & ~by_trajectories
    if 2 * off.sum() <= len(off):
        return None
    mean = float(np.nan_to_num(samples.mean) @ (1 / siblings)) / num
    average = with_minus(f"{mean:.2g}")
    return Fault(
        f"their mean is 0 over {num_rows:,} rows and {average} over {num:,}"
        f" trajectories, in {pluralize(off.sum(), 'group')}",
        tuple(np.flatnonzero(off[samples.group]).tolist()),
    )


BALANCED = Contract(
    "advantages average 0 over trajectories",
    "advantages",
    _unbalanced,
    effect="long trajectories shift the baseline of their group",
    advice="Take the mean of a group over trajectories, not over their rows.",
)
