"""The sample batch that is installed with rounddiag."""

from __future__ import annotations

from pathlib import Path

from rounddiag.batch import Batch
from rounddiag.loaders.open import load

_PACKAGE = Path(__file__).parents[1]


def sample_path() -> Path:
    """Return the file of the sample batch; its tokenizer lies beside it.

    The wheel has it inside the package, a checkout beside the package.
    """
    installed = _PACKAGE / "sample_data" / "image_window.parquet"
    checkout = _PACKAGE.parent / "sample_data" / "image_window.parquet"
    return installed if installed.exists() else checkout


def demo() -> Batch:
    """Open the sample batch that is installed with rounddiag.

    64 trajectories of a small vision-language agent, sampled by vLLM and scored by
    transformers, which sees the last two screenshots of each round only.

    Returns
    -------
    Batch
        As `load` returns it, with text and screenshots.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.demo()
    >>> (batch.num_samples, rd.diagnose(batch).verdict)
    (64, 'broken')
    """
    return load(sample_path())
