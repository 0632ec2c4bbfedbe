"""A batch with each cause that seconds can make, and the code that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import rounddiag as rd
from rounddiag.findings import CAUSES, Diagnosis
from tests.faults.cases import Case

_DIAGNOSE = "diagnosis = rd.diagnose(batch)"
_IMPORT = "import rounddiag as rd\n\n"
_REPLACE = f"from dataclasses import replace\n\n{_IMPORT}"
_ADVANTAGES = f'{_REPLACE}batch = rd.load("sample_data/advantages.parquet")\n'


def _shipped(name: str) -> str:
    return f'{_IMPORT}batch = rd.demo("{name}")\n{_DIAGNOSE}'


def _rescored(change: str) -> str:
    """Return the code that scores sound tokens as a hypothesis says."""
    return (
        f'{_IMPORT}batch = rd.demo("healthy")\n'
        f'batch = rd.rescore(batch, "sample_data/model", "{change}")\n'
        f'diagnosis = rd.diagnose(batch, a="{change}")'
    )


CODES = {
    "image_window": _shipped("image_window"),
    "stale_weights": _shipped("stale"),
    "truncated_sampling": _shipped("truncated_sampling"),
    "rewritten_history": _shipped("step_rows"),
    "dropped_image": _rescored("zero_features"),
    "wrong_image": _rescored("image_before"),
    "image_expansion": _rescored("percent_of_the_pixels_50"),
    "position_ids": _rescored("positions_restart_at_observations"),
    "context_masked": _rescored("observations_masked"),
    "packing_leak": _rescored("pack_of_4_attended"),
    "prompt_mismatch": _rescored("first_message_removed"),
    "retokenised": _rescored("thoughts_removed"),
    "constant_bias": f"""{_REPLACE}batch = rd.demo("healthy")
batch = replace(batch, rollout_log_probs=batch.rollout_log_probs - 0.3)
{_DIAGNOSE}""",
    "impossible_log_probs": f"""{_REPLACE}batch = rd.demo("healthy")
batch = replace(batch, old_log_probs=batch.old_log_probs.exp())
{_DIAGNOSE}""",
    "newer_weights": f"""{_REPLACE}batch = rd.demo("stale")
batch = replace(batch, step=batch.step - 10)
{_DIAGNOSE}""",
    "mask_offset": f"""{_REPLACE}batch = rd.demo("healthy")
batch = replace(batch, response_mask=batch.response_mask.roll(1))
{_DIAGNOSE}""",
    "untrained_stops": f"""{_REPLACE}batch = rd.demo("healthy")
mask, rounds = batch.response_mask.clone(), batch.rounds
mask[rounds.start + rounds.num_tokens - 1] = 0
batch = replace(batch, response_mask=mask)
{_DIAGNOSE}""",
    "lost_advantages": f"""{_ADVANTAGES}rounds = batch.rounds
last = rounds.sample != rounds.sample.roll(-1)
advantages = 0 * batch.advantages
for start, size in zip(rounds.start[last], rounds.num_tokens[last]):
    advantages[start : start + size] = batch.advantages[start : start + size]
batch = replace(batch, advantages=advantages)
{_DIAGNOSE}""",
    "zero_advantages": f"""{_ADVANTAGES}\
batch = replace(batch, advantages=0 * batch.advantages)
{_DIAGNOSE}""",
    "outlier_advantages": f"""{_ADVANTAGES}advantages = batch.advantages.clone()
advantages[: batch.offsets[1]] *= 1000  # of the first sample
batch = replace(batch, advantages=advantages)
{_DIAGNOSE}""",
    "slipped_advantages": f"""{_ADVANTAGES}\
trained = batch.advantages[batch.response_mask != 0]
advantages = (batch.advantages - trained.mean()) / trained.std()
batch = replace(batch, advantages=advantages)
{_DIAGNOSE}""",
    "split_groups": f"""{_ADVANTAGES}\
batch = replace(batch, group_ids=[str(row) for row in range(batch.num_samples)])
{_DIAGNOSE}""",
}


@dataclass(frozen=True)
class Planted:
    """A batch with a cause; `code` makes it, and is empty for a batch of the tests."""

    cause: str
    batch: rd.Batch
    diagnosis: Diagnosis
    code: str = ""

    @property
    def is_named(self) -> bool:
        """Whether a finding names the cause."""
        return self.cause in [finding.cause for finding in self.diagnosis]

    @property
    def number(self) -> int:
        """Which finding is of the cause: the one that names it, or the first."""
        causes = [finding.cause for finding in self.diagnosis]
        return causes.index(self.cause) if self.is_named else 0


def _run(cause: str) -> Planted:
    names: dict[str, Any] = {}
    exec(CODES[cause], names)  # noqa: S102 of this file
    return Planted(cause, names["batch"], names["diagnosis"], CODES[cause])


def _of_tests(cause: str, cases: Sequence[Case]) -> Planted | None:
    """Return a batch whose diagnosis names the cause; else one that is seen."""
    planted = [
        Planted(cause, case.batch(), rd.diagnose(case.batch(), **case.arguments()))
        for case in cases
        if cause in case.causes
    ]
    seen = [p for p in planted if p.diagnosis.verdict in ("suspicious", "broken")]
    return next((p for p in planted if p.is_named), seen[0] if seen else None)


def plant_all(cases: Sequence[Case]) -> dict[str, Planted]:
    """Return a batch for each cause that has one, of the tests' where no code has."""
    planted = {
        cause: _run(cause) if cause in CODES else _of_tests(cause, cases)
        for cause in CAUSES
    }
    return {cause: batch for cause, batch in planted.items() if batch is not None}
