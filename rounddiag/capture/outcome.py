"""Outcome: whether a Recorder recorded anything, and the line that says why not."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rounddiag.capture.facts import why_nothing_to_record
from rounddiag.capture.writer import logger

if TYPE_CHECKING:
    from rounddiag.capture.options import Options
    from rounddiag.capture.writer import Writer


_NEVER_CALLED = (
    "neither `step` nor `step_keys` was called. verl runs the V1 trainer by default"
    " (`trainer.use_v1=True`), and skips the training engine's pass with"
    " `algorithm.rollout_correction.bypass_mode=True`"
)


@dataclass(kw_only=True)
class Outcome:
    """What became of the calls of a Recorder.

    Attributes
    ----------
    options : Options
    writer : Writer
    num_calls : int
        Number of calls of `step` and `step_keys`.
    num_due : int
        Number of these whose step is recorded.
    is_sent : bool
        Whether the Recorder was pickled, as for a Ray actor that records instead.
    """

    options: Options
    writer: Writer
    num_calls: int = 0
    num_due: int = 0
    is_sent: bool = False
    _process: int = field(default_factory=os.getpid)

    def warn_early(self) -> None:
        """Log a line if the facts of the run leave nothing to record."""
        if reason := why_nothing_to_record(self.options.facts):
            logger.warning("no step will be recorded because %s", reason)

    def report(self) -> None:
        """Log a line if no step was recorded. Called when the Recorder or process ends.

        A forked child, and a Recorder that was sent elsewhere, say nothing.
        """
        is_other = self.is_sent and not self.num_calls
        if is_other or self._process != os.getpid():
            return
        if reason := self._reason():
            folder = self.options.folder
            logger.warning("no step was recorded in %s because %s", folder, reason)

    def _reason(self) -> str:
        """Return why no step was recorded; "" if one was, or still may be."""
        if self.writer.num_done:
            return ""
        if not self.num_calls:
            return why_nothing_to_record(self.options.facts) or _NEVER_CALLED
        if not self.num_due and not self.writer.errors:
            steps = f"{self.num_calls} calls" if self.num_calls > 1 else "one call"
            return (
                f"`every` is {self.options.every}, and none of {steps} had a step that"
                " is a multiple of it"
            )
        return self.writer.first_error
