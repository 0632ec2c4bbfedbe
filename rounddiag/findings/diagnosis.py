"""`Diagnosis`: the verdict on a batch and its findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import overload

import pandas as pd

from rounddiag.checks import Checks
from rounddiag.findings.causes import NO_CAUSE
from rounddiag.findings.finding import Finding
from rounddiag.findings.level import Level
from rounddiag.findings.onset import Onset
from rounddiag.findings.reference import Range
from rounddiag.findings.verdict import Verdict, find_verdict
from rounddiag.wording import percent, pluralize, printable


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Diagnosis(Sequence[Finding]):
    """The verdict on a batch and its findings, the largest share first.

    Attributes
    ----------
    verdict : {"identical", "healthy", "noisy", "stale", "suspicious", "broken", \
"not_measurable"}
    level: Mean |diff| with its interval, KL, mean exp|diff|, probability difference,
        Pearson r.
    kind: The kind of run whose range was used.
    kind_is_assumed: Whether neither the caller nor the batch's `meta` named the kind.
    rest: The level of what no finding explains.
    checks: The contracts of `rounddiag.check` that were tested, and those that the
        file does not allow to test.
    reason: Why there is no verdict on the mismatch; empty otherwise.
    caveat: A warning about all numbers, such as that the rounds are unknown; empty if
        none.
    mass: That the mean of exp(old - rollout) is above 1, where it must be 1; else
        empty.
    consequence: What the mismatch does to the update; empty without advantages.
    sentences: What differs and where; then what else fails.
    headline: The caveat and the sentences.
    advice: The cause and how it was shown, or what is possible and what tests it.
    """

    verdict: Verdict
    level: Level
    kind: str
    kind_is_assumed: bool
    reference: Range
    rest: Level
    findings: tuple[Finding, ...]
    checks: Checks
    reason: str = ""
    is_thinned: bool = field(default=False)
    caveat: str = ""
    mass: str = ""
    consequence: str = ""
    sentences: tuple[str, ...] = ()
    advice: str = ""

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        try:
            return self.findings[index]
        except IndexError:
            msg = (
                f"expected the number of one of {pluralize(len(self), 'finding')};"
                f" found {index}. The verdict is {self.verdict!r}:"
                " `diagnosis.text` has it."
            )
            raise IndexError(msg) from None

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def headline(self) -> str:
        """The caveat and the sentences."""
        return self.caveat + " ".join(self.sentences)

    @property
    def text(self) -> str:
        """The headline, and below it the cause and how it was shown, or families."""
        return "\n".join(filter(None, (self.headline, self.advice)))

    def at_limits(self, factor: float) -> Verdict:
        """Return the verdict that the batch would have with all limits multiplied.

        Examples
        --------
        >>> import rounddiag as rd
        >>> rd.diagnose(rd.load("sample_data/healthy.parquet")).at_limits(0.01)
        'suspicious'
        """
        if self.verdict in ("not_measurable", "identical"):
            return self.verdict
        return find_verdict(self.level, self.reference, self.findings, factor=factor)

    @property
    def updates(self) -> tuple[Finding, ...]:
        """The facts that make an update wrong, whatever the mismatch is."""
        return tuple(finding for finding in self if finding.severity == "update")

    @property
    def onset(self) -> Onset | None:
        """The round from which on the batch differs, if a place has one."""
        places = [finding for finding in self if finding.is_bug]
        return next(
            (finding.where["onset"] for finding in places if "onset" in finding.where),
            None,
        )

    @property
    def address(self) -> str:
        """The token to look at first, as `rounddiag show` takes it; empty without."""
        addresses = (finding.address for finding in self if finding.kind != "level")
        return next(filter(None, addresses), "")

    @property
    def frame(self) -> pd.DataFrame:
        """One row per finding: `kind, cause, share, where, num_tokens, shown, ...`."""
        names = ["kind", "cause", "share", "where", "num_tokens"]
        names += ["p", "shown", "candidates", "next_step"]
        rows = [
            (
                *(finding.kind, finding.cause, finding.share, finding.location),
                *(finding.num_tokens, finding.p, finding.shown),
                *(", ".join(map(str, finding.candidates)), finding.next_step),
            )
            for finding in self
        ]
        return pd.DataFrame(rows, columns=names)

    def __repr__(self) -> str:
        lines = [f"{self.verdict}: {self.headline}", *self.advice.splitlines()]
        lines += [
            f"  {percent(finding.share):>5}  {finding.kind:<8}"
            f"  {f'{cause}: ' if cause else ''}{finding.location}"
            for finding, cause in zip(self, self.causes, strict=True)
        ]
        if self.address:
            lines.append(f"Look at: {self.address}")
        if self.prove_command not in self.advice:
            lines.append(f"Prove it: {self.prove_command}")
        return "\n".join(map(printable, lines))

    @property
    def causes(self) -> list[str]:
        """The cause of each finding in words; "" for all where none is known."""
        is_any = any(finding.cause != NO_CAUSE for finding in self)
        return [finding.name if is_any else "" for finding in self]

    @property
    def prove_command(self) -> str:
        """The command that tests the first finding with a hypothesis, else empty."""
        first = self._first_provable
        return first.prove_command if first else ""

    @property
    def _first_provable(self) -> Finding | None:
        return next((finding for finding in self if finding.prove_call), None)

    def _repr_html_(self) -> str:
        columns: dict[str, Sequence[str]] = {
            "kind": [finding.kind for finding in self],
            "cause": self.causes,
            "share of sum |diff|": [percent(finding.share) for finding in self],
            "where": [finding.location for finding in self],
            "next": [finding.next_step for finding in self],
        }
        known = {name: texts for name, texts in columns.items() if any(texts)}
        head = "".join(f"<th>{name}</th>" for name in known)
        cells = [
            "".join(f"<td>{_cell(text)}</td>" for text in row)
            for row in zip(*known.values(), strict=True)
        ]
        rows = "".join(f"<tr>{row}</tr>" for row in cells)
        table = f"<table><tr>{head}</tr>{rows}</table>" if self.findings else ""
        # JupyterLab would typeset `$...$` in names of the file.
        text = "<br>".join(map(_cell, self.text.splitlines()))
        head = f"<p><b>{self.verdict}</b>: {text}</p>"
        first = self._first_provable
        call = first.prove_call if first else ""
        proof = f"<p>Prove it: <code>{_cell(call)}</code></p>" if call else ""
        return f'<div class="mathjax_ignore">{head}{table}{proof}</div>'


def _cell(text: str) -> str:
    """Write text of a file for a page: column names and values are untrusted."""
    return escape(printable(text))
