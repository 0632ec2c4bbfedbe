"""Where the tokens of a finding are, in the terms that a user acts on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# |diff| from which two engines differ by more than a factor of 2.
FACTOR_2 = float(np.log(2))
# A role or a column value is named where this part of the large diffs has it ...
MOST = 0.9
# ... and at most this part of all tokens.
MAX_BASE = 0.7
# Roles need the text of every token.
MAX_TOKENS_FOR_ROLES = 100_000
_FEW = 5
_ALL = 0.995  # shown as 100 %
# A correlation over samples below this, in standard errors, follows nothing.
_MIN_Z = 3.0


def places(view: View, indices: Array) -> dict[str, Any]:
    """Return where some tokens of a view are.

    Returns
    -------
    dict
        `samples`, `rounds` (first and last), `num_large` (tokens that differ by more
        than a factor of 2, or all where they are few), and where most of those share
        one: `role`, `column` with `value`; `not_with` names what it does not follow.
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
    """Return the names of the roles, and the code of each token of the view."""
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
        return None  # a tokenizer that is a name of the network, or is gone
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


def not_followed(view: View) -> list[str]:
    """Name what the size of |diff| of a sample does not follow.

    Of `length`, `reward`, `rounds`, `images`: those that vary over samples and whose
    correlation with the sample's mean |diff| is within 3 standard errors of 0.
    """
    mean = view.per_sample(view.abs)
    there = np.isfinite(mean)
    facts: dict[str, Array] = {"length": view.num_per_sample.astype(float)}
    if view.batch.rewards is not None:
        facts["reward"] = view.batch.rewards.double().cpu().numpy()
    sample = view.batch.rounds.sample.cpu().numpy()
    facts["rounds"] = np.bincount(sample, minlength=len(mean)).astype(float)
    if view.images is not None:
        facts["images"] = np.nan_to_num(view.per_sample(view.images.astype(float)))
    names = []
    for name, values in facts.items():
        x, y = values[there], mean[there]
        if (
            len(x) < 2 * _FEW
            or not np.isfinite(x).all()
            or x.std() == 0
            or y.std() == 0
        ):
            continue
        r = float(np.corrcoef(x, y)[0, 1])
        if abs(r) * np.sqrt(len(x)) < _MIN_Z:
            names.append(name)
    return names


def place_clause(where: Mapping[str, Any], indices: Array, view: View) -> str:
    """Return the places as one clause.

    Examples
    --------
    A finding at 341 tokens reads "341 tokens from round 5 on; all are coordinates; all
    in 8 of 64 samples (`rank` = 3)".
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
        return "no single tokens"
    text = "all tokens" if len(indices) == len(view) else _count(len(indices))
    if num_large >= _FEW:
        text = f"{_count(num_large)} differ by more than a factor of 2"
        if num_large == 1:
            text = "1 token differs by more than a factor of 2"
    first = where.get("rounds_from", where.get("rounds", (0,))[0])
    if first:
        text += (
            f", none before round {first}"
            if num_large >= _FEW
            else (f" from round {first} on")
        )
    return text


def _count(num: int) -> str:
    return f"{num} token" if num == 1 else f"{num} tokens"


def _share(share: float) -> str:
    return "all" if share > _ALL else f"{share:.0%}"
