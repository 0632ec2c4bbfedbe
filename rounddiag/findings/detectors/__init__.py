"""The detectors: one cause a module, or one family that shares its evidence."""

from rounddiag.findings.detectors import changes as changes
from rounddiag.findings.detectors import context as context
from rounddiag.findings.detectors import contracts as contracts
from rounddiag.findings.detectors import fills as fills
from rounddiag.findings.detectors import identical as identical
from rounddiag.findings.detectors import limits as limits
from rounddiag.findings.detectors import masks as masks
from rounddiag.findings.detectors import penalty as penalty
from rounddiag.findings.detectors import positions as positions
from rounddiag.findings.detectors import precision as precision
from rounddiag.findings.detectors import rows as rows
from rounddiag.findings.detectors import shifts as shifts
from rounddiag.findings.detectors import slopes as slopes
from rounddiag.findings.detectors import tails as tails
from rounddiag.findings.detectors import temperature as temperature
from rounddiag.findings.detectors import truncation as truncation
from rounddiag.findings.detectors import weights as weights
from rounddiag.findings.detectors import workers as workers
