"""Histories of browser-use, `AgentHistoryList.save_to_file`: one JSON document.

A step has what the agent read (`state`, `state_message`), what the model answered and
what its actions gave. Its screenshot is in it, or a file: copy the agent's folder
`screenshots` beside the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rounddiag.batch.content import Piece, as_json
from rounddiag.batch.messages import describe_calls
from rounddiag.batch.turns import GENERATED
from rounddiag.loaders.assembly.turns import Transcript
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.outcome import outcome, seconds_between
from rounddiag.loaders.source import Source
from rounddiag.text.json_text import object_in, objects_in

_STATE = ("screenshot", "screenshot_path")
_RESULTS = ("extracted_content", "long_term_memory", "error", "images")
_TIMES = ("step_start_time", "step_end_time")


def read_history(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read the steps of an agent; a round is an answer of the model.

    What the agent says of its own success is the column `success`, what a judge says
    `judgement.verdict`: neither is a reward.
    """
    for document in lines:
        transcript = Transcript(file=source.path, names={source.path.stem: 0})
        for step in objects_in(document.get("history")):
            _add_step(transcript, step)
        usage = document.get("usage")
        totals = {"num_generated": "total_completion_tokens", "cost": "total_cost"}
        transcript.columns = transcript.merge(
            document=transcript.plain(document, "history", "usage"),
            result=transcript.columns,
            usage=transcript.named(usage, of="usage"),
            outcome=outcome(usage, **totals),
        )
        yield transcript


def _add_step(transcript: Transcript, step: dict[str, Any]) -> None:
    state, metadata = object_in(step.get("state")), object_in(step.get("metadata"))
    columns = transcript.merge(
        state=transcript.plain(state, *_STATE, of="state"),
        metadata=transcript.plain(metadata, *_TIMES, of="metadata"),
        outcome=seconds_between(*(metadata.get(name) for name in _TIMES)),
    )
    shot = {"image": state.get("screenshot_path")}
    if isinstance(data := state.get("screenshot"), str):
        shot = {"image_base64": data}
    transcript.add({"role": "user", "content": [step.get("state_message"), shot]})
    answer = object_in(step.get("model_output"))
    if answer:
        _add_answer(transcript, answer, columns)
    else:  # the model was not asked, or did not answer
        transcript.left_out |= {f"step.{name}" for name in columns}
    for result in objects_in(step.get("result")):
        _add_result(transcript, result, is_answered=bool(answer))
    used = ("state", "metadata", "state_message", "model_output", "result")
    transcript.leave_out(step, *used, of="step")


def _add_answer(
    transcript: Transcript, answer: dict[str, Any], columns: dict[str, object]
) -> None:
    # Older versions have the thought and the memory in an object of their own.
    others = {**object_in(answer.get("current_state")), **answer}
    others.pop("current_state", None)
    thought = others.pop("thinking", None)
    written = as_json(others)
    turn = transcript.add(
        {"reasoning_content": thought, "content": written}, GENERATED, columns=columns
    )
    turn.action = describe_calls(
        Piece(kind="call", text=str(name), arguments=arguments)
        for action in objects_in(answer.get("action"))
        for name, arguments in action.items()
        if arguments is not None  # older versions name every action of the agent
    )


def _add_result(
    transcript: Transcript, result: dict[str, Any], *, is_answered: bool
) -> None:
    """Add what an action gave: its texts once, its pictures, what failed.

    What failed before there was an answer is no error of the round before.
    """
    texts = [t for n in _RESULTS[:2] if isinstance(t := result.get(n), str)]
    images = objects_in(result.get("images"))
    shots = [{"image_base64": image.get("data")} for image in images]
    for image in images:
        transcript.leave_out(image, "data", of="result.images")
    failed = {"error": result.get("error")}
    content = [*dict.fromkeys(texts), *([] if is_answered else [failed["error"]])]
    transcript.add(
        {"content": [*content, *shots], **(failed if is_answered else {})}, "tool"
    )
    transcript.columns |= transcript.named(result.get("judgement"), of="judgement")
    ended = ("is_done", "success")
    transcript.leave_out(result, *_RESULTS, "judgement", *ended, of="result")
    transcript.columns |= transcript.plain({n: result.get(n) for n in ended})


BROWSER_USE = Format(
    name="histories of an agent",
    framework="browser-use",
    files=("AgentHistory*.json",),
    keys=("history[].model_output", "history[].state"),
    trajectories=read_history,
    verified="written by browser-use 0.13.14",
    in_parts=True,
)
