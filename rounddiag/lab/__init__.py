"""JupyterLab on one batch: the notebook that loads it, and the server that shows it."""

from rounddiag.lab.notebook import notebook_for
from rounddiag.lab.server import start_lab

__all__ = ["notebook_for", "start_lab"]
