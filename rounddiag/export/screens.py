"""The screenshots of the worst round, small, in the page itself."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

from rounddiag.checks.words import count
from rounddiag.errors import RounddiagError
from rounddiag.export.document import Section

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot


def worst_screens(batch: Batch, rounds: pd.DataFrame, worst: int, num: int) -> Section:
    """Return what the samples that are worst in a round saw just before it."""
    there = rounds[rounds["round"] == worst].sort_values(
        "mean_abs_diff", ascending=False, kind="stable"
    )
    shots = [
        (int(sample), shot)
        for sample in there["sample"]
        for shot in (batch.images or ())[sample]
        if shot.round == worst
    ]
    chosen = shots[: max(num, 0)]
    how = (
        f"<p>{len(chosen):,} of {count(len(shots), 'screenshot')} shown to the model "
        f"just before round {worst}, the round with the largest mean |diff|; samples "
        "with the largest mean |diff| in that round first.</p>"
    )
    pictures = "".join(_picture(sample, shot) for sample, shot in chosen)
    return Section(
        key="screenshots",
        title=f"Screenshots of round {worst}",
        body=f'{how}<div class="screens">{pictures}</div>',
    )


def _picture(sample: int, shot: Screenshot) -> str:
    try:
        width, height = shot.seen_size or shot.size
        data = b64encode(shot.small_jpeg()).decode()
    except RounddiagError as error:
        said = escape(" ".join(str(error).split()))
        return f"<p>Sample {sample}: its screenshot cannot be shown. {said}</p>"
    name = f"sample {sample}, {width} x {height} pixels"
    return (
        f'<figure><img src="data:image/jpeg;base64,{data}" '
        f'alt="What the model saw: {name}"><figcaption>{name}</figcaption></figure>'
    )
