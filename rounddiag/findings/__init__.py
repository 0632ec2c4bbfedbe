"""Noise or a bug: facts, reversals, places, the level of a mismatch, and the verdict.

`rd.diagnose(batch)` reads a batch into a `View`, takes the facts that its values, ids
and masks decide, undoes the changes that can be undone inside of it, finds the places
where tokens differ, and judges the level by the range of the batch's kind:

>>> import rounddiag as rd
>>> diagnosis = rd.diagnose(rd.load("sample_data/healthy.parquet"))
>>> diagnosis.verdict, [finding.cause for finding in diagnosis]
('healthy', [])

- `batch_diagnosis`: `diagnose`; `diagnosis`: `Diagnosis`; `kept`: each batch keeps its
  own; `verdict`: one word for the batch; `sentence`: the diagnosis in words;
  `reference`: healthy ranges by kind.
- `explanation`: facts first, then reversals, then places, then the level.
- `registry`: `register` and the table of detectors; `detectors`: one module for each
  fact or reversal; `finding`: `Finding`, the `Evidence` of a detector, the numbers of a
  finding's figure.
- `place`: `places`, sets of tokens that differ; `excess`: tokens beyond the usual at
  several levels; `conditions`: the columns that describe them; `sample_sets`: sets of
  samples that no column names; `common_values`: values that the samples of such a set
  share; `slices`: the search for conjunctions; `permutation`: whether chance explains
  one; `rotation`: hits that move along samples; `starts`: a round, or a position in the
  context, from which on a place is; `onset`: the first round that differs.
- `causes`: what a finding can name; `families`: which families of causes are possible
  at a place, with what was measured for each; `measure`: a number of the evidence;
  `some_rows`: a sampler's setting in some rows only.
- `noise`: |diff| of sound tokens, which a reversal must reach.
- `view`: `View`, the tokens as numpy arrays; `level`: means with intervals; `bins`:
  quantiles, bins and groups of millions of values; `equal_tokens`: tokens that are
  bitwise equal; `two_kinds`: groups, samples or rounds that differ where the others
  agree; `consequence`: what the mismatch does to the update.
"""

from rounddiag.findings import detectors as detectors
from rounddiag.findings.batch_diagnosis import diagnose, known_diagnosis
from rounddiag.findings.causes import CAUSES, FAMILIES, Candidate, Cause
from rounddiag.findings.diagnosis import Diagnosis
from rounddiag.findings.finding import Evidence, Finding
from rounddiag.findings.level import Level
from rounddiag.findings.measure import Measure
from rounddiag.findings.onset import Onset
from rounddiag.findings.place import places
from rounddiag.findings.reference import REFERENCE, Range
from rounddiag.findings.registry import DETECTORS, Detector, register
from rounddiag.findings.view import View

__all__ = [
    "CAUSES",
    "DETECTORS",
    "FAMILIES",
    "REFERENCE",
    "Candidate",
    "Cause",
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
    "known_diagnosis",
    "places",
    "register",
]


def __dir__() -> list[str]:
    """List the public names, without the modules that hold them."""
    return __all__
