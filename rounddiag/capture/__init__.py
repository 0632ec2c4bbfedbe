"""Save a batch from inside a training loop: torch, numpy and pyarrow are enough."""

from rounddiag.capture.saving import save_batch

__all__ = ["save_batch"]
