"""The call that brings an explorer back as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.widgets.state import State

if TYPE_CHECKING:
    from rounddiag.batch import Batch


def code_of(batch: Batch, state: State) -> str:
    """Write the code that opens a batch's file and shows the same.

    A batch that was never a file is called `batch`.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> print(code_of(batch, State(metric="k3")))
    import rounddiag as rd
    <BLANKLINE>
    batch = rd.load('sample_data/healthy.parquet')
    rd.explore(batch, metric='k3', current={'sample': 0, 'round': 0, 'token': 0})
    """
    source = batch.meta.get("source")
    usual, now = State().as_dict(), state.as_dict()
    chosen = {
        key: now[key] for key in now if now[key] != usual[key] or key == "current"
    }
    words = "".join(f", {key}={value!r}" for key, value in chosen.items())
    opening = f"batch = rd.load({source!r})\n" if isinstance(source, str) else ""
    return f"import rounddiag as rd\n\n{opening}rd.explore(batch{words})"
