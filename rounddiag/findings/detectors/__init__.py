"""The detectors: each module has one cause, or several that share evidence.

- Ids, masks and values: `contracts` (failed checks), `exact_values` (filled, identical,
  of low precision), `shifts`, `rows`, `masks`.
- Sampling: `temperature`, `truncation`, `penalty`.
- Context: `context`, `positions` (saved position ids).
- Engines and weights: `changes` (growing, decaying, or from one token on), `weights`,
  `workers` (whole samples).
- A place whose cause is unknown: `tails` (single tokens).
"""

from rounddiag.findings.detectors import changes as changes
from rounddiag.findings.detectors import context as context
from rounddiag.findings.detectors import contracts as contracts
from rounddiag.findings.detectors import exact_values as exact_values
from rounddiag.findings.detectors import masks as masks
from rounddiag.findings.detectors import penalty as penalty
from rounddiag.findings.detectors import positions as positions
from rounddiag.findings.detectors import rows as rows
from rounddiag.findings.detectors import shifts as shifts
from rounddiag.findings.detectors import tails as tails
from rounddiag.findings.detectors import temperature as temperature
from rounddiag.findings.detectors import truncation as truncation
from rounddiag.findings.detectors import weights as weights
from rounddiag.findings.detectors import workers as workers
