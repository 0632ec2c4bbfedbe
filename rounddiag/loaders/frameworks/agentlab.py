"""Episodes of AgentLab and BrowserGym: a folder of pickled steps and of screenshots.

`summary_info.json` is beside them. The pickles are read as plain data; no code runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rounddiag.batch.turns import GENERATED
from rounddiag.loaders.assembly.turns import Transcript, plain_values
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.outcome import outcome
from rounddiag.loaders.packed import unpack
from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.loaders.source import Source, inside, load_errors
from rounddiag.loaders.stored import scalar_value
from rounddiag.text.json_text import object_in


def read_episode(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read an episode; a round is the thought and the action of a step.

    The reward of an action is in the step after it.
    """
    summary, folder = lines.first, source.path.parent
    transcript = Transcript(file=source.path, names={folder.name: 0})
    count = summary.get("n_steps")
    steps = [
        _step(folder, i) for i in range(count + 1 if isinstance(count, int) else 0)
    ]
    for number, step in enumerate(steps):
        seen, info = _fields(step.get("obs")), _fields(step.get("agent_info"))
        texts = [seen.get("goal")] if not number else [seen.get("last_action_error")]
        file = f"screenshot_step_{number}.png"
        parts = [{"text": text} for text in texts if isinstance(text, str)]
        if (folder / file).exists():
            parts.append({"image": file})
        transcript.add({"content": parts}, "user")
        action = step.get("action")
        if isinstance(action, str):
            after = steps[number + 1] if number + 1 < len(steps) else {}
            thought = {"thinking": info.get("think")}
            turn = transcript.add({"content": [thought, {"text": action}]}, GENERATED)
            turn.action = action
            stats = step.get("stats")
            turn.columns = transcript.merge(
                agent_info=transcript.plain(info, "think", of="agent_info"),
                stats=transcript.plain(stats, of="stats"),
                outcome={
                    **outcome(stats, **_OUTCOME),
                    **outcome(_fields(after.get("obs")), error="last_action_error"),
                    **plain_values({"reward": after.get("reward")}),
                },
            )
        else:
            transcript.leave_out(info, of="agent_info")
        unread = [f"steps.{name}" for name in transcript.plain(step, *_OF_STEPS)]
        unread += [f"steps.obs.{name}" for name in transcript.plain(seen, *_OF_SEEN)]
        transcript.left_out.update(unread)
    transcript.columns = transcript.merge(
        summary=transcript.plain(summary, "stack_trace"),
        outcome={
            **outcome(summary, error="err_msg"),
            **plain_values({"rewards": summary.get("cum_reward")}),
        },
    )
    yield transcript


_OUTCOME = {
    "seconds": "agent_elapsed",
    "num_generated": "output_tokens",
    "cost": "cost",
}
_OF_STEPS = (
    *("step", "obs", "action", "agent_info", "stats", "reward", "terminated"),
    "truncated",
)
_OF_SEEN = ("goal", "last_action_error", "screenshot")


def _step(folder: Path, number: int) -> dict[str, Any]:
    source = unpack(Source.of_file(inside(folder, f"step_{number}.pkl.gz")))
    span = source.whole()
    with load_errors(source), span.open() as stream:
        return _fields(PickleMachine(span, stream).run())


def _fields(value: object) -> dict[str, Any]:
    value = value.state if isinstance(value, Node) else value
    return {str(key): scalar_value(item) for key, item in object_in(value).items()}


AGENTLAB = Format(
    name="episodes, a folder each",
    framework="AgentLab, BrowserGym",
    files=("summary_info.json",),
    keys=("n_steps", "cum_reward"),
    trajectories=read_episode,
    verified="written by the classes of browsergym-experiments 0.14.3",
    in_parts=True,
)
