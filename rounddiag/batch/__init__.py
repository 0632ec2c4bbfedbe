"""Batch: the aligned, validated tensors of one training step; no I/O.

==============  ====================================================================
`batch`         `Batch`: one flat tensor per field, with offsets of the samples
`layout`        padded tensors and rows -> flat tensors; selecting samples
`validation`    shapes, lengths, dtypes and the mask, checked on construction
`html`          the tables that a notebook shows for a batch and its checks
==============  ====================================================================
"""

from rounddiag.batch.batch import Batch, require_batch

__all__ = ["Batch", "require_batch"]
