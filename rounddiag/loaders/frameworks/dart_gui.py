"""Steps of DART-GUI, `data_for_step_*.pt`: a call with the sampler's log-probs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rounddiag.batch.turns import GENERATED
from rounddiag.loaders.assembly.turns import AgentTurn, Transcript, call_of
from rounddiag.loaders.format import Format
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import column_values

_NAMES = ("prompt_token_ids", "token_ids", "logp")
_STEP = re.compile(r"step_(\d+)")


def read_step(root: Mapping[str, object], source: Source) -> Iterator[Transcript]:
    """Read a step as a sample of one round.

    The sample columns `dataset_ids` and `step_idx` name its trajectory, which is its
    folder, and its number: `load(folder, sample_by="dataset_ids")` joins the steps.
    """
    values = {name: column_values(root[name]) for name in _NAMES}
    call = call_of(values, *_NAMES)
    if call is None:
        raise source.error(
            expected=f"lists of numbers in {', '.join(_NAMES)}",
            found="other values",
            advice="Save the step again with DART-GUI.",
        )
    turns = [AgentTurn(role=GENERATED, call=call)]
    folder = source.path.absolute().parent.name
    number = _STEP.search(source.path.stem)
    columns: dict[str, object] = {"dataset_ids": folder}
    columns |= {"step_idx": int(number[1])} if number else {}
    name = f"{folder}/{source.path.stem}"
    yield Transcript(file=source.path, names={name: 0}, turns=turns, columns=columns)


DART_GUI = Format(
    name="steps",
    framework="DART-GUI",
    files=("data_for_step_*.pt",),
    keys=("logp", "token_ids", "prompt_token_ids"),
    trajectories=read_step,
    in_parts=True,
)
