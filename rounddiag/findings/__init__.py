"""Noise or a bug: the cause of a mismatch, with evidence, places and a next step.

`rd.diagnose(batch)` reads a batch into a `View`, lets every registered detector look
for its evidence, removes the largest cause and searches again, and judges the level by
the range of the batch's kind:

>>> import rounddiag as rd
>>> diagnosis = rd.diagnose(rd.load("sample_data/healthy.parquet"))
>>> diagnosis.verdict, [finding.cause for finding in diagnosis]
('healthy', [])

- `diagnosis`: `diagnose` and `Diagnosis`; `verdict`: one word for the batch;
  `sentence`: the diagnosis in words; `reference`: healthy ranges by kind.
- `place`: `places`, sets of tokens that differ; `conditions`: the columns that describe
  them; `sample_sets`: sets of samples that no column names; `slices`: the search for
  conjunctions of conditions.
- `causes`: what a finding can name, and what would tell causes apart; `measures`:
  what a mismatch looks like, in numbers; `naming`: the probabilities of causes from
  them; `finding`: `Finding`, the `Evidence` of a detector, the numbers of a
  finding's figure.
- `view`: `View`, the tokens as numpy arrays; `level`: means with intervals.
- `registry`: `register` and the table of detectors; `detectors`: one module per cause
  that is no place.
- `bins`: quantiles, bins and groups of millions of values.
- `explanation`: the largest cause first, then what is left.
- `correlates`: what |diff| does not follow; `onset`: the first round that differs;
  `equal_start`: samples that are bitwise equal up to a token.
"""

from rounddiag.findings import detectors as detectors
from rounddiag.findings.causes import CAUSES, Alternative
from rounddiag.findings.diagnosis import Diagnosis, diagnose
from rounddiag.findings.finding import Evidence, Finding, Measure
from rounddiag.findings.level import Level
from rounddiag.findings.onset import Onset, round_onset
from rounddiag.findings.place import places
from rounddiag.findings.reference import REFERENCE, Range
from rounddiag.findings.registry import DETECTORS, Detector, register
from rounddiag.findings.view import View

__all__ = [
    "CAUSES",
    "DETECTORS",
    "REFERENCE",
    "Alternative",
    "Detector",
    "Diagnosis",
    "Evidence",
    "Finding",
    "Level",
    "Measure",
    "Onset",
    "Range",
    "View",
    "diagnose",
    "places",
    "register",
    "round_onset",
]


def __dir__() -> list[str]:
    """List the public names, without the modules that hold them."""
    return __all__
