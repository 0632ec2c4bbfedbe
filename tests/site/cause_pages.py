"""A page per cause and per check: what it means, how it looks, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import rounddiag as rd
from rounddiag.checks import Check, suite
from rounddiag.checks.contracts import Contract
from rounddiag.findings.causes import CAUSES, FAMILIES, NEXT_STEP
from rounddiag.findings.registry import DETECTORS
from rounddiag.proof.hypotheses import all_registered
from rounddiag.wording import capitalize
from tests.faults.cases import Case
from tests.site.failures import record_failures
from tests.site.pages import Page, draw, slug
from tests.site.planted import Planted

CONTRACTS = (*suite._FAST, *suite._OTHERS)
_KINDS = {
    "bug": "Bugs: the log-probs, the ids or the mask are wrong",
    "update": "Wrong updates from sound log-probs",
    "note": "Worth knowing; the verdict stays",
}
_NO_FAMILY = "what values, ids, masks and rows show"


def _sections(parts: Iterable[tuple[str, str]]) -> str:
    """Return headings with their texts, without those that have none."""
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in parts if text)


def cause_pages(
    pictures: Path, planted: Mapping[str, Planted], failures: Mapping[str, str]
) -> Iterator[Page]:
    """Yield a page for each cause that a finding can name."""
    for name, cause in CAUSES.items():
        family = FAMILIES.get(cause.family, _NO_FAMILY)
        checks = [contract for contract in CONTRACTS if contract.cause == name]
        advice = [contract.advice for contract in checks if contract.advice]
        looks = [failures[c.name] for c in checks if c.name in failures]
        if name in planted:
            looks = [_look(pictures, planted[name])]
        sections = [
            ("How it looks", "\n\n".join(looks)),
            ("How it is established", _established(name, checks)),
            ("What to do", "\n\n".join(dict.fromkeys(advice or [cause.test]))),
        ]
        yield Page(
            name=name,
            title=capitalize(cause.meaning),
            sentence=f"`{name}`",
            group=capitalize(family),
            text=f"`{name}` · {capitalize(family)}\n\n{_sections(sections)}",
        )


def _look(pictures: Path, planted: Planted) -> str:
    """Return the picture of the finding, the headline, and the code of both."""
    number = planted.number
    finding = planted.diagnosis[number]
    headline = planted.diagnosis.headline
    source = "One of the batches that the tests diagnose."
    code = ""
    if planted.code:
        source = "With the sample data of a checkout:"
        code = f"```python\n{planted.code}\n```"
    picture = ""
    if finding.severity != "update":  # the diff of tokens shows nothing of it
        plot = partial(rd.plot_finding, finding)
        picture = draw(pictures, planted.cause, finding.location, plot)
        code = code.removesuffix("```") + f"rd.plot_finding(diagnosis[{number}])\n```"
    code = code if planted.code else ""
    verdict = f"> **{planted.diagnosis.verdict}**: {headline}"
    return "\n\n".join(filter(None, [picture, verdict, source, code]))


def _established(name: str, checks: Iterable[Contract]) -> str:
    lines = [
        f"- A fact: the check [{c.name}](../checks/{slug(c.name)}.md) fails."
        for c in checks
    ]
    if detector := DETECTORS.get(name):
        first = (detector.detect.__doc__ or "").partition("\n\n")[0]
        lines.append(f"- A {detector.kind} of `rd.diagnose`: {first}")
    tried = [each for each in all_registered() if each.cause == name]
    if tried or CAUSES[name].hypotheses:
        what = " scores the tokens again with:" if tried else " tests it."
        lines.append(f"- A proof: `rounddiag prove`{what}")
        lines += [f"  - `{h.name}`: {h.says}" for h in tried]
    if not lines:
        return f"Nothing in one batch does: a place lists it as possible. {NEXT_STEP}"
    return "\n".join(lines)


def find_failures(
    planted: Mapping[str, Planted], cases: Iterable[Case]
) -> dict[str, str]:
    """Return how each check fails on the first batch that fails it.

    A batch that a reader can make comes before those of the tests.
    """
    batches = [(p.batch, p.code) for p in planted.values()]
    failures: dict[str, str] = {}
    for batch, code in (*batches, *((case.batch(), "") for case in cases)):
        made = "One of the batches that the tests diagnose:"
        if code:
            made = f"```python\n{code}\nrd.check(batch)\n```"
        for check in rd.check(batch).failed:
            failures.setdefault(check.name, _reads(check, made))
    for check, file in record_failures().values():
        failures.setdefault(check.name, _reads(check, f"A batch of `{file}`:"))
    return failures


def check_pages(failures: Mapping[str, str]) -> Iterator[Page]:
    """Yield a page for each check."""
    for contract in sorted(CONTRACTS, key=lambda c: [*_KINDS].index(c.kind)):
        effect = f"{capitalize(contract.effect)}." if contract.effect else ""
        cause = CAUSES.get(contract.cause)
        fields = ", ".join(f"`{name}`" for name in contract.field.split(", "))
        established = f"From {fields}, without statistics."
        if cause:
            page = f"../causes/{slug(contract.cause)}.md"
            established += f" A failure names the cause [{cause.meaning}]({page})."
        if contract.refutes:
            refuted = CAUSES[contract.refutes].meaning
            page = f"../causes/{slug(contract.refutes)}.md"
            established += f" Where it holds, it rules out [{refuted}]({page})."
        sections = [
            ("If it fails", effect),
            ("How a failure reads", failures.get(contract.name, "")),
            ("How it is established", established),
            ("What to do", contract.advice),
        ]
        yield Page(
            name=contract.name,
            title=capitalize(contract.name),
            sentence=contract.effect,
            group=_KINDS[contract.kind],
            text=_sections(sections),
        )


def _reads(check: Check, made: str) -> str:
    return f"{made}\n\n> failed: {check.name}: {check.detail}"
