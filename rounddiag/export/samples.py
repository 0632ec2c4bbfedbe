"""The worst samples: which they are, and each token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from rounddiag.checks.words import count
from rounddiag.core import sample_frame
from rounddiag.export.document import Section
from rounddiag.export.embedding import embedded
from rounddiag.export.facts import frame_table
from rounddiag.figures import plot_trajectory, token_text
from rounddiag.schema import SAMPLES

if TYPE_CHECKING:
    from rounddiag.batch import Batch

_SHOWN = (
    *("sample", "sample_id", "group_id", "reward", "num_rounds", "num_tokens"),
    *("mean_abs_diff", "max_abs_diff"),
)
# Of each sample, so that the page can be mailed, and opens at once.
_MAX_TOKENS = 2_000


def worst_samples(batch: Batch, num_worst: int) -> Section:
    """Return the samples with the largest mean |diff|, their figures and texts."""
    samples = sample_frame(batch)
    known = samples[samples["mean_abs_diff"].notna()]
    worst = known.nlargest(num_worst, "mean_abs_diff")
    shown = worst[[name for name in _SHOWN if name in worst]]
    how = (
        f"<p>{len(worst):,} of {count(len(samples), 'sample')}, chosen by the mean of "
        "|diff| over all generated tokens of the sample, largest first. A sample of "
        "few tokens is easily among them: look at the counts. "
        f"{_without(len(samples) - len(known))}</p>"
    )
    numbers = tqdm(worst["sample"], unit="sample", leave=False, delay=1)
    return Section(
        key="samples",
        title="Worst samples",
        body=how + (frame_table(shown, SAMPLES, "Worst samples") if len(worst) else ""),
        parts=tuple(_sample(batch, int(sample)) for sample in numbers),
    )


def _without(num: int) -> str:
    is_are = "has" if num == 1 else "have"
    return f"{count(num, 'sample')} {is_are} no finite diff." if num else ""


def _sample(batch: Batch, sample: int) -> Section:
    return Section(
        key=f"sample-{sample}",
        title=f"Sample {sample}",
        body=embedded(plot_trajectory, batch, sample=sample)
        + token_text(batch, sample=sample, max_tokens=_MAX_TOKENS).html,
    )
