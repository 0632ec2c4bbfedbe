"""What a function is given in the place of a batch."""

from __future__ import annotations

from rounddiag.batch.container import Batch
from rounddiag.errors import BatchError


def need_batch(given: object) -> None:
    """Raise a BatchError for what is no Batch: the path of one, say.

    Examples
    --------
    >>> need_batch("step_40.parquet")
    Traceback (most recent call last):
    ...
    rounddiag.errors.BatchError: expected a Batch; found a str. Open a file with \
`rounddiag.load(path)` first.
    """
    if not isinstance(given, Batch):
        raise BatchError.build(
            expected="a Batch",
            found=f"a {type(given).__name__}",
            advice="Open a file with `rounddiag.load(path)` first.",
        )
