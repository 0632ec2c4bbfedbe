"""Where the tokens of a finding are: samples, rounds, roles and column values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# |diff| at which two engines differ by a factor of 2.
FACTOR_2 = float(np.log(2))
# A role or a column value is named if this share of the large diffs has it ...
MOST = 0.9
# ... and at most this part of all tokens.
MAX_BASE = 0.7
# Roles need the text of every token.
MAX_TOKENS_FOR_ROLES = 100_000
_FEW = 5
_ALL = 0.995  # shown as 100 %
# A correlation below this, in standard errors, follows nothing.
_MIN_Z = 3.0
_LARGE = 3.0  # nats: one token beyond it weighs no more


def places(view: View, indices: Array) -> dict[str, Any]:
    """Return where some tokens of a view are.

    Returns
    -------
    dict
        `samples`, `rounds` (first and last), `num_large` (tokens that differ by more
        than a factor of 2, or all if these are few), and where most of those share one:
        `role`, `column` with `value`; `not_with` names what it does not follow.
    """
    samples = np.unique(view.sample[indices])
    large = indices[view.abs[indices] > FACTOR_2]
    num_large = len(large)
    if num_large < _FEW:
        large = indices
    where: dict[str, Any] = {"samples": samples, "num_large": num_large}
    if len(large):
        rounds = view.round[large]
        where["rounds"] = (int(rounds.min()), int(rounds.max()))
        where["large_samples"] = np.unique(view.sample[large])
        if num_large >= _FEW:
            where |= _role(view, large) | _column(view, large)
    return where


def _role(view: View, large: Array) -> dict[str, Any]:
    """Name the role that most of the large diffs have."""
    codes = _roles(view)
    if codes is None:
        return {}
    names, role = codes
    counts = np.bincount(role[large], minlength=len(names))
    base = np.bincount(role, minlength=len(names)) / len(role)
    top = int(counts.argmax())
    share = float(counts[top] / len(large))
    if share < MOST or base[top] > MAX_BASE:
        return {}
    return {"role": names[top], "role_share": share}


def _roles(view: View) -> tuple[list[str], Array] | None:
    """Return the names of the roles, and the code of each token's role."""
    batch = view.batch
    if batch.tokenizer is None or batch.is_redacted:
        return None
    if view.is_thinned or batch.num_tokens > MAX_TOKENS_FOR_ROLES:
        return None
    memo = view.facts.memo
    if "roles" not in memo:
        memo["roles"] = _read_roles(view)
    if memo["roles"] is None:
        return None
    names, codes = memo["roles"]
    rounds = batch.rounds
    num = rounds.num_tokens.cpu().numpy()
    before = np.cumsum(num) - num
    return names, codes[before[view.segment] + view.token]


def _read_roles(view: View) -> tuple[list[str], Array] | None:
    from rounddiag.core import token_frame
    from rounddiag.errors import RounddiagError

    try:
        role = token_frame(view.batch, columns=["role"])["role"]
    except (RounddiagError, OSError):
        return None  # a tokenizer that must be downloaded, or no longer exists
    return [str(name) for name in role.cat.categories], role.cat.codes.to_numpy()


def _column(view: View, large: Array) -> dict[str, Any]:
    """Name the column value that most of the large diffs have."""
    facts = view.facts
    best: tuple[float, dict[str, Any]] = (MAX_BASE, {})
    columns = [
        (name, values, view.sample) for name, values in facts.sample_columns.items()
    ]
    columns += [
        (name, values, view.segment) for name, values in facts.round_columns.items()
    ]
    for name, values, owner in columns:
        text = values.astype(str)
        known, codes = np.unique(text, return_inverse=True)
        if not 1 < len(known) <= len(values) / 2:
            continue
        code = codes[owner]
        counts = np.bincount(code[large], minlength=len(known))
        top = int(counts.argmax())
        base = float((code == top).mean())
        share = float(counts[top] / len(large))
        if share >= MOST and base < best[0]:
            value = values[np.flatnonzero(codes == top)[0]]
            value = value.item() if hasattr(value, "item") else value
            best = (base, {"column": name, "value": value, "column_share": share})
    return best[1]


def not_followed(view: View, indices: Array) -> list[str]:
    """Name what |diff| of some tokens does not follow.

    Those of `length`, `rounds`, `screenshots` and `reward` of a sample and `position`
    in the round that vary, and whose correlation with |diff| is within 3 standard
    errors of 0.
    """
    num_samples = view.batch.num_samples
    sample, size = view.sample[indices], view.abs[indices]
    count = np.bincount(sample, minlength=num_samples)
    total = np.bincount(sample, weights=size, minlength=num_samples)
    mean = total / np.maximum(count, 1)
    owner = view.batch.rounds.sample.cpu().numpy()
    facts: dict[str, Array] = {
        "length": view.batch.lengths.cpu().numpy().astype(float),
        "number of rounds": np.bincount(owner, minlength=num_samples).astype(float),
    }
    if view.images is not None:
        facts["screenshots"] = np.nan_to_num(view.per_sample(view.images.astype(float)))
    if view.batch.rewards is not None:
        facts["reward"] = view.batch.rewards.double().cpu().numpy()
    there = count > 0
    names = [name for name, fact in facts.items() if _is_flat(fact[there], mean[there])]
    position = _per_sample_correlation(view.token[indices], size, sample)
    if len(position) >= 2 * _FEW and abs(_z(position)) < _MIN_Z:
        names.append("position in the round")
    return names


def _is_flat(x: Array, y: Array) -> bool:
    """Return whether two values per sample vary and are not correlated."""
    if len(x) < 2 * _FEW or not np.isfinite(x).all() or x.std() == 0 or y.std() == 0:
        return False
    return bool(abs(np.corrcoef(x, y)[0, 1]) * np.sqrt(len(x)) < _MIN_Z)


def _per_sample_correlation(token: Array, size: Array, sample: Array) -> Array:
    """Return the covariance of |diff| and token index, one value per sample."""
    codes = np.unique(sample, return_inverse=True)[1] if len(sample) else sample
    num = np.maximum(np.bincount(codes), 1)
    x = token - (np.bincount(codes, weights=token) / num)[codes]
    y = np.minimum(size, _LARGE)
    y = y - (np.bincount(codes, weights=y) / num)[codes]
    return np.bincount(codes, weights=x * y)


def _z(values: Array) -> float:
    return float(values.sum() / max(np.sqrt((values**2).sum()), 1e-300))


def place_clause(where: Mapping[str, Any], indices: Array, view: View) -> str:
    """Return the places as one clause.

    Examples
    --------
    A finding at 341 tokens reads "341 tokens are affected, none before round 5; all are
    coordinate tokens; all in 8 of 64 samples (`rank` = 3)".
    """
    parts = [_tokens(where, indices, view)]
    if "role" in where:
        parts.append(f"{_share(where['role_share'])} are {where['role']} tokens")
    samples = where.get("large_samples", where["samples"])
    total = int((view.num_per_sample > 0).sum())
    if 0 < len(samples) < total:
        scope = "all" if len(indices) else "found"
        text = f"{scope} in {len(samples)} of {total} samples"
        if "column" in where and "value" in where:
            text += f" (`{where['column']}` = {where['value']})"
        parts.append(text)
    elif "column" in where and "value" in where:
        parts.append(f"`{where['column']}` = {where['value']}")
    return "; ".join(parts)


def _tokens(where: Mapping[str, Any], indices: Array, view: View) -> str:
    num_large = where.get("num_large", 0)
    if not len(indices):
        return "no single tokens stand out"
    if num_large >= _FEW:
        text = f"{num_large} tokens differ by more than a factor of 2"
    elif len(indices) == len(view):
        text = "all tokens are affected"
    else:
        text = "1 token is" if len(indices) == 1 else f"{len(indices)} tokens are"
        text += " affected"
    onset = where.get("onset")
    if onset is not None:
        exact = onset.low == onset.high
        text += f", from round {onset.round} on"
        return text if exact else f"{text} ({onset.interval})"
    first = where.get("rounds", (0,))[0]
    if first:
        text += f", none before round {first}"
    return text


def _share(share: float) -> str:
    return "all" if share > _ALL else f"{share:.0%}"
