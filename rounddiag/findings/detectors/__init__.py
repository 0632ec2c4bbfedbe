"""The detectors: what is decided by values, and what a change undoes.

Each file registers its own. Facts are values, ids, masks; a reversal fits a change on
one half of the clusters and judges it on the other. Places need no detector:
`findings.place` finds them.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)  # each registers its own
