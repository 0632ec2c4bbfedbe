"""The detectors: one cause a module, or one family that shares its evidence."""

from rounddiag.findings.detectors import fills as fills
from rounddiag.findings.detectors import identical as identical
from rounddiag.findings.detectors import temperature as temperature
