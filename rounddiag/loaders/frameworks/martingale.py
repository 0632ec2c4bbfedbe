"""The ledger of martingale, `tokens.db`: the weights behind each token."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rounddiag.batch import Batch
from rounddiag.batch.content import is_empty
from rounddiag.core.versions import TRAINER
from rounddiag.loaders.fields import SAMPLING
from rounddiag.loaders.format import Format
from rounddiag.loaders.plain_columns import collect_columns
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import batch_from_table, table_of
from rounddiag.text.json_text import JsonError, parse_json
from rounddiag.wording import pluralize

_Rows = Sequence[Mapping[str, Any]]


def _parse(source: Source, text: str) -> Any:  # noqa: ANN401 of a record
    try:
        return parse_json(text)
    except JsonError as error:
        raise source.error(
            expected="records of JSON",
            found=f"text that is none ({error})",
            advice="The ledger is damaged: copy or save it again.",
        ) from error


_NAN = float("nan")


def read_ledger(tables: Mapping[str, _Rows], source: Source) -> Batch:
    """Build a batch of all sequences; versions are the learner's steps.

    Where several revisions of the trainer scored a sequence, the earliest counts.
    """
    manifests = {
        row["digest"]: _parse(source, row["manifest_json"])
        for row in tables["llm_revisions"]
    }
    steps = {digest: manifest["step"] for digest, manifest in manifests.items()}
    scores: dict[str, Any] = defaultdict(lambda: defaultdict(dict))
    scored = [_parse(source, row["record_json"]) for row in tables["scores"]]
    for row, score in zip(tables["scores"], scored, strict=True):
        of_trainer = scores[row["sequence_digest"]][row["train_revision_digest"]]
        of_trainer[row["position"]] = _number(score["logprob_bits"])
    records = [_parse(source, row["record_json"]) for row in tables["sequences"]]
    if not records:
        raise source.error(
            expected="a ledger with sequences",
            found="none",
            advice="Open it after martingale has recorded a generation.",
        )
    columns, left_out = collect_columns(
        _row(record, scores.get(record["digest"], {}), steps) for record in records
    )
    left_out += _unread("sequences", records)
    left_out += _unread("tokens", [t for record in records for t in record["tokens"]])
    left_out += _unread("scores", scored)
    left_out += _unread("llm_revisions", [*manifests.values()])
    left_out += _unread("sampler", [part["sampler"] for part in manifests.values()])
    sampler = manifests[records[0]["tokens"][0]["revision_digest"]]["sampler"]
    info = {name: sampler[name] for name in SAMPLING if sampler.get(name) is not None}
    trainers = {*columns[TRAINER]} - {None}
    if len(trainers) == 1:
        info["step"] = trainers.pop()
    if not scores:
        del columns["old_log_probs"], columns[TRAINER]
    num_others = sum(max(len(of_trainers) - 1, 0) for of_trainers in scores.values())
    if num_others:
        left_out.append(pluralize(num_others, "score") + " by a later revision")
    return batch_from_table(
        replace(table_of(columns, info=info), left_out=left_out), source
    )


def _row(
    record: Mapping[str, Any],
    scores: Mapping[str, Mapping[int, float]],
    steps: Mapping[str, int],
) -> dict[str, Any]:
    tokens, prompt = record["tokens"], record["prompt_ids"]
    trainer = min(scores, key=steps.__getitem__, default="")
    old = scores.get(trainer, {})
    reward = record["reward_bits"]
    return {
        "responses": [token["token_id"] for token in tokens],
        "response_mask": [1] * len(tokens),
        "rollout_log_probs": [_number(token["logprob_bits"]) for token in tokens],
        "old_log_probs": [old.get(token["position"], _NAN) for token in tokens],
        "versions": [steps[token["revision_digest"]] for token in tokens],
        **({} if prompt is None else {"prompts": prompt}),
        "rewards": None if reward is None else _number(reward),
        "uid": record["prompt_digest"],
        "sample_ids": record["sequence_id"],
        TRAINER: steps.get(trainer),
        "provenance": record.get("provenance", "fresh"),
        "actor_id": record["actor_id"],
    }


# What is read of each record, and digests, which say what belongs together.
_READ = {
    "sequences": {
        *("tokens", "prompt_ids", "reward_bits", "sequence_id"),
        *("provenance", "actor_id"),
    },
    "tokens": {"token_id", "position", "logprob_bits"},
    "scores": {"position", "logprob_bits"},
    "llm_revisions": {"step", "sampler"},
    "sampler": {*SAMPLING},
}


def _unread(of: str, records: Sequence[Mapping[str, Any]]) -> set[str]:
    return {
        f"{of}.{name}"
        for record in records
        for name, value in record.items()
        if name not in _READ[of] and "digest" not in name and not is_empty(value)
    }


def _number(bits: str) -> float:
    """Return a float from the bits that martingale writes, such as `f32:bf800000`."""
    kind, _, digits = bits.partition(":")
    (number,) = struct.unpack({"f32": ">f", "f64": ">d"}[kind], bytes.fromhex(digits))
    return float(number)


MARTINGALE = Format(
    name="a ledger of tokens",
    framework="martingale",
    files=("tokens.db",),
    keys=("llm_revisions", "sequences", "scores"),
    read=read_ledger,
    verified="written by martingale 0.2.0",
)
