"""The detectors: each module has one cause, or several that share evidence.

- Ids, masks and values: `contracts` (failed checks), `exact_values` (filled, identical,
  of low precision), `shifts`, `rows`, `masks`.
- Sampling: `temperature`, `truncation`, `penalty`.
- Context: `positions` (saved position ids).
- Weights and arithmetic of all tokens: `weights`. Single tokens: `tails`.

Places need no detector: `findings.place` finds them.
"""

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
