"""The detectors: what is decided by values, and what a change undoes.

- Facts: `failed_checks` (of `rd.check`: copies, holes, ids, position ids), which are
  taken before all others; `masks`, `exact_values` (filled, identical, on the grid of a
  short dtype).
- Reversals: `shifts` (a lag), `rows` (another row), `bias` (a constant), `mask_offset`;
  of all tokens `temperature`,
  `truncation` and `penalty`, by a relation that other causes break.

Places need no detector: `findings.place` finds them.
"""

from rounddiag.findings.detectors import bias as bias
from rounddiag.findings.detectors import exact_values as exact_values
from rounddiag.findings.detectors import mask_offset as mask_offset
from rounddiag.findings.detectors import masks as masks
from rounddiag.findings.detectors import penalty as penalty
from rounddiag.findings.detectors import rows as rows
from rounddiag.findings.detectors import shifts as shifts
from rounddiag.findings.detectors import temperature as temperature
from rounddiag.findings.detectors import truncation as truncation
