"""`rounddiag show FILE ADDRESS`: the tokens of a place as text, or as JSON.

With `--json` one object: `address`, `sample`, and `rounds`, each with `round`,
`address`, `num_tokens`, `mean_abs_diff` in nats (null without both log-probs),
`action`, `text`, and `tokens` (only of a round that was named): `token`, `position`,
`token_id`, `old_log_prob`, `rollout_log_prob`, `diff`, `role`, `text`, as far as the
file has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.batch.address import Address
from rounddiag.cli.terminal import json_line
from rounddiag.core import token_frame
from rounddiag.core.scores import has_pair
from rounddiag.vision import parse_actions
from rounddiag.widgets.episode import recorded_actions
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    import pandas as pd

# A column of the frame, and what a batch needs to have it.
_COLUMNS = {
    "position": (),
    "token_id": ("ids",),
    "old_log_prob": ("old",),
    "rollout_log_prob": ("rollout",),
    "role": ("text", "tokenizer"),
    "text": ("text", "tokenizer"),
}
_AROUND = 20  # tokens on each side of a token that was named


def show_place(batch: Batch, address: str, *, as_json: bool) -> str:
    """Return a sample round by round, or the tokens of a round."""
    sample, index, token = Address.parse(address).locate(batch)
    names = [name for name, needed in _COLUMNS.items() if not batch.lacks(*needed)]
    frame = token_frame(batch[[sample]], names)
    rounds = [
        _describe(batch, sample, number, own, with_tokens=index is not None)
        for number in frame["round"].unique().tolist()
        if index in (None, number)
        for own in [frame[frame["round"] == number]]
    ]
    place = str(Address.of(batch, sample, index, token))
    if as_json:
        place_facts = {"address": place, "sample": sample, "rounds": rounds}
        return json_line(place_facts)
    head = f"{place} (sample {sample}, {pluralize(len(rounds), 'round')})"
    return "\n\n".join([head, *(_as_text(described, token) for described in rounds)])


def _describe(
    batch: Batch, sample: int, number: int, own: pd.DataFrame, *, with_tokens: bool
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "round": number,
        "address": str(Address.of(batch, sample, number)),
        "num_tokens": len(own),
        "mean_abs_diff": _mean_abs_diff(own) if has_pair(batch) else None,
    }
    if "text" in own:
        described["text"] = "".join(own["text"])
        written = [action.source_text for action in parse_actions(described["text"])]
        known = recorded_actions(batch[sample], batch[sample].num_rounds)
        described["action"] = "; ".join(written) or known[number]
    if with_tokens:
        tokens = own.drop(columns=["sample", "round"])
        described["tokens"] = tokens.to_dict("records")
    return described


def _mean_abs_diff(own: pd.DataFrame) -> float | None:
    size = np.abs(own["diff"].to_numpy(np.float64))
    known = size[np.isfinite(size)]
    return float(known.mean()) if len(known) else None


def _as_text(described: dict[str, Any], token: int | None) -> str:
    mean = described["mean_abs_diff"]
    size = "" if mean is None else f", mean |diff| {mean:.4g} nat"
    lines = [
        f"r{described['round']}: {pluralize(described['num_tokens'], 'token')}{size}",
        *(
            [f"action: {described['action'] or 'none found'}"]
            if "action" in described
            else []
        ),
    ]
    if "tokens" not in described:
        return "\n".join(
            [*lines, *([repr(described["text"])] if "text" in described else [])]
        )
    shown = described["tokens"]
    if token is not None:
        first = max(token - _AROUND, 0)
        shown = shown[first : token + _AROUND + 1]
    names = [name for name in shown[0] if name not in ("token", "position", "token_id")]
    rows = [["token", *names]]
    for entry in shown:
        mark = "> " if entry["token"] == token else "  "
        rows.append(
            [f"{mark}t{entry['token']}", *(_cell(entry[name]) for name in names)]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(
            cell.ljust(width) if name in ("role", "text") else cell.rjust(width)
            for cell, width, name in zip(row, widths, rows[0], strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *table])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    return value if isinstance(value, str) and value.isidentifier() else repr(value)
