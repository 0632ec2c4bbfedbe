"""The call that brings an explorer back as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.widgets.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.batch import Batch

_OF_TWO = ("batch", "heatmap")


def code_of(batches: Mapping[str, Batch], state: State) -> str:
    """Write the code that opens the files of one batch or two and shows the same.

    A batch that was never a file is called `batch`, two of which one was not `batches`.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> print(code_of({"healthy": batch}, State(metric="k3")))
    import rounddiag as rd
    <BLANKLINE>
    batch = rd.load('sample_data/healthy.parquet')
    rd.explore(batch, metric='k3', current={'sample': 0, 'round': 0, 'token': 0})
    """
    name, value = _opening(batches)
    usual, now = State().as_dict(), state.as_dict()
    needed = ("current", *(_OF_TWO if len(batches) > 1 else ()))
    chosen = {key: now[key] for key in now if now[key] != usual[key] or key in needed}
    words = "".join(f", {key}={value!r}" for key, value in chosen.items())
    opening = f"{name} = {value}\n" if value else ""
    return f"import rounddiag as rd\n\n{opening}rd.explore({name}{words})"


def _opening(batches: Mapping[str, Batch]) -> tuple[str, str]:
    """Name what is explored, and write how it is opened; nothing if it is no file."""
    name = "batch" if len(batches) == 1 else "batches"
    sources = [batch.meta.get("source") for batch in batches.values()]
    if not all(isinstance(source, str) for source in sources):
        return name, ""
    if len(sources) == 1:
        return name, f"rd.load({sources[0]!r})"
    files = zip(batches, sources, strict=True)
    loaded = ", ".join(f"{key!r}: rd.load({source!r})" for key, source in files)
    return name, f"{{{loaded}}}"
