"""Save batches from inside a training loop: torch, numpy and pyarrow are enough."""

from rounddiag.capture.recorder import Recorder
from rounddiag.capture.rounds import round_record
from rounddiag.capture.step_file import save_batch

__all__ = ["Recorder", "round_record", "save_batch"]
