"""`rounddiag check FILE`: the diagnosis of a batch, for CI.

With `--json` it prints one JSON object on one line. Numbers that are not finite are
null. Its keys:

- `file`: the path as it was passed. `verdict`, `text`: the diagnosis in one word and in
  a sentence. `fail_on`, `failed`: the level, and whether the verdict reaches it.
- `level`: `mean_abs_diff` with its 95 % interval `low` to `high`, `median_abs_diff` and
  `kl` in nats; `mult_prob_error`, `prob_diff`, `pearson`, `num_tokens`, `num_samples`.
- `reference`: `kind`, `kind_is_assumed`, and the range of that kind, among others
  `usual` and `limit` of mean |diff| in nats.
- `findings`, the largest share first: `kind`, `cause`, `severity`, `share`, `p`,
  `location`, `address` (for `rounddiag show`), `num_tokens`, `samples`, `shown`,
  `evidence` (`name`, `value`, `unit`, `low`, `high`), `families` (by name, the
  clue for each), `candidates` (`cause`, `family`, `clue`, `meaning`, `test`,
  `hypotheses`), `next_step`.
- `proof`: with `--model`, where the verdict fails: `verdict`, `side`, `cause`,
  `next_step`; else null.
- `failed_checks`: `name`, `kind`, `cause`, `detail`, `samples`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rounddiag.batch import Batch
from rounddiag.checks import Checks
from rounddiag.cli.summary import describe_diagnosis, describe_failed_checks
from rounddiag.cli.terminal import json_line
from rounddiag.findings import Diagnosis, Finding, diagnose
from rounddiag.findings.verdict import Verdict, is_at_least
from rounddiag.wording import printable

_PROOF = ("verdict", "side", "cause", "next_step")
_CHECK = ("name", "kind", "cause", "detail")
_CANDIDATE = ("cause", "family", "clue", "meaning", "test", "hypotheses")


def run_check(
    batch: Batch,
    file: str,
    *,
    model: str | None = None,
    fail_on: Verdict,
    as_json: bool,
) -> tuple[str, bool]:
    """Diagnose a batch and compare the verdict with a level.

    With a model, a batch that lacks an engine's log-probs is scored first, and what
    fails is proved.
    """
    engine: Any = model  # or what has scored with it
    if model is not None and batch.lacks("old", "rollout"):
        from rounddiag.proof import open_scorer, rescore_with

        engine = open_scorer(batch, model)
        batch = rescore_with(engine)
    diagnosis = diagnose(batch)
    checks = diagnosis.checks
    failed = is_at_least(diagnosis.verdict, fail_on) or bool(diagnosis.updates)
    proof = None
    if failed and model is not None:
        from rounddiag.proof import prove

        proof = prove(batch, engine)
    if as_json:
        facts = {
            "file": file,
            "verdict": diagnosis.verdict,
            "text": diagnosis.text,
            "fail_on": fail_on,
            "failed": failed,
            **_facts(diagnosis, checks),
            "proof": proof and {name: getattr(proof, name) for name in _PROOF},
        }
        return json_line(facts), failed
    result = (
        f"{'failed' if failed else 'passed'}: the verdict is {diagnosis.verdict}; "
        f"{fail_on} or worse fails, and so does a wrong update"
    )
    command = diagnosis.prove_command
    if model is not None and not failed:
        proved = "no proof: only what fails is proved with `--model`"
    elif proof or command in diagnosis.advice:
        proved = repr(proof) if proof else ""
    else:
        proved = f"prove it: {printable(command)}"
    paragraphs = [
        describe_diagnosis(diagnosis),
        describe_failed_checks(checks),
        proved,
        result,
    ]
    return "\n\n".join(filter(None, paragraphs)), failed


def _facts(diagnosis: Diagnosis, checks: Checks) -> dict[str, Any]:
    return {
        "level": asdict(diagnosis.level),
        "reference": {
            "kind": diagnosis.kind,
            "kind_is_assumed": diagnosis.kind_is_assumed,
            **asdict(diagnosis.reference),
        },
        "findings": [_finding(finding) for finding in diagnosis],
        "failed_checks": [
            {
                **{name: getattr(check, name) for name in _CHECK},
                "samples": list(check.samples),
            }
            for check in checks.failed
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "cause": finding.cause,
        "severity": finding.severity,
        "share": finding.share,
        "p": finding.p,
        "location": finding.location,
        "address": finding.address,
        "num_tokens": finding.num_tokens,
        "samples": finding.samples.tolist(),
        "shown": finding.shown,
        "evidence": [asdict(item) for item in finding.evidence],
        "families": finding.families,
        "candidates": [
            {name: getattr(candidate, name) for name in _CANDIDATE}
            for candidate in finding.candidates
        ],
        "next_step": finding.next_step,
    }
