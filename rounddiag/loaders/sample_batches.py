"""`demo`: batches that are installed with rounddiag, one for each common situation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from rounddiag.batch import Batch
from rounddiag.errors import LoadError, require_one_of
from rounddiag.loaders.open import load

DemoName = Literal[
    "image_window", "healthy", "stale", "truncated_sampling", "step_rows", "one_engine"
]
_TOP_P = 0.9
_PACKAGE = Path(__file__).parents[1]


class Demo(NamedTuple):
    """A situation: what it shows, its file, and what is changed after loading.

    `sample_by` names the column by which rows that are steps are joined.
    """

    sentence: str
    file: str
    sample_by: str | None = None
    view: str = ""  # keyword arguments of the explorer call that shows it
    edit: Callable[[Batch], Batch] | None = None


def demo(name: DemoName = "image_window") -> Batch:
    """Open a sample batch that is installed with rounddiag.

    Trajectories of a small vision-language agent, most sampled by vLLM and scored by
    transformers, with text and screenshots.

    Parameters
    ----------
    name : str
        - "image_window": the training engine sees the last two screenshots only.
        - "healthy": the engines differ by floating-point noise only.
        - "stale": older weights sampled half of the trajectories.
        - "truncated_sampling": "healthy" with the sampler's log-probs renormalised as
          top-p 0.9 does. The mass that top-p keeps is computed, not recorded: each
          token's distribution is taken as geometric.
        - "step_rows": 12 trajectories whose rows are steps, joined: each round has a
          context of its own. The trainer's leave out earlier thoughts.
        - "one_engine": "healthy" without the training engine's log-probs.

    Returns
    -------
    Batch
        As `load` returns it.

    Raises
    ------
    LoadError
        If no sample batch has this name.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.demo()
    >>> (batch.num_samples, rd.diagnose(batch).verdict)
    (64, 'broken')
    >>> rd.diagnose(rd.demo("healthy")).verdict
    'healthy'
    """
    advice = "`rounddiag demo` lists them."
    require_one_of(name, DEMOS, key="name", advice=advice, error=LoadError)
    situation = DEMOS[name]
    batch = load(sample_path(situation.file), sample_by=situation.sample_by)
    if situation.edit is None:
        return batch
    edited = situation.edit(batch)
    # It is not in the file, so nothing may say that it can be opened there.
    meta = {name: fact for name, fact in edited.meta.items() if name != "source"}
    return replace(edited, meta=meta)


def sample_path(file: str) -> Path:
    """Return the path of a sample file; its tokenizer lies beside it.

    The wheel has it inside the package, a checkout beside the package.
    """
    installed = _PACKAGE / "sample_data" / file
    return installed if installed.exists() else _PACKAGE.parent / "sample_data" / file


def _with_truncated_sampling(batch: Batch) -> Batch:
    """Renormalise the sampler's log-probs over the tokens that top-p keeps.

    In a geometric distribution whose most likely token has probability p, the n most
    likely have the mass 1 - (1 - p)^n. Top-p keeps the smallest n that reaches it.
    """
    log_prob = batch.log_probs("rollout").double()
    log_rest = torch.log1p(-log_prob.exp())
    number = torch.log1p(torch.tensor(-_TOP_P, dtype=torch.float64)) / log_rest
    mass = -torch.expm1(number.ceil().clamp(min=1) * log_rest)
    sampling = {**batch.meta["sampling"], "top_p": _TOP_P}
    return replace(
        batch,
        rollout_log_probs=(log_prob - mass.log()).clamp(max=0).float(),
        meta={
            **batch.meta,
            "sampling": sampling,
            "facts": {**batch.meta["facts"], "sampling": sampling},
        },
    )


def _with_one_engine(batch: Batch) -> Batch:
    meta = {k: fact for k, fact in batch.meta.items() if k != "old_log_probs_source"}
    return replace(batch, old_log_probs=None, meta=meta)


DEMOS: dict[str, Demo] = {
    "image_window": Demo(
        "The training engine drops all screenshots but the last two: the engines"
        " disagree from round 2 on.",
        "image_window.parquet",
    ),
    "healthy": Demo(
        "The engines differ by floating-point noise: nothing stands out.",
        "healthy.parquet",
    ),
    "stale": Demo(
        "Older weights sampled half of the trajectories, as in asynchronous training.",
        "stale.parquet",
        view='by="weight_version"',
    ),
    "truncated_sampling": Demo(
        "The sampler's log-probs are of the tokens that top-p 0.9 keeps, the trainer's"
        " of the whole vocabulary.",
        "healthy.parquet",
        edit=_with_truncated_sampling,
    ),
    "step_rows": Demo(
        "Each round has a context of its own, with the last two screenshots. The"
        " trainer's leave out the thoughts of earlier rounds, the sampler's keep them.",
        "step_rows.parquet",
        sample_by="traj_uid",
    ),
    "one_engine": Demo(
        "The batch has the sampler's log-probs only: no mismatch can be measured, but"
        " every token, screenshot and action is there.",
        "healthy.parquet",
        edit=_with_one_engine,
    ),
}
