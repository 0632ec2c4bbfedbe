"""The detectors by name, and how to add one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from rounddiag.findings.finding import Evidence
from rounddiag.findings.view import View

Detect: TypeAlias = Callable[[View], Evidence | Iterable[Evidence] | None]
# All exact evidence is taken first. Then one finding at a time: fitted effects,
# places, and last, evidence from the level of the mismatch alone.
Stage: TypeAlias = Literal["exact", "fit", "place", "level"]
D = TypeVar("D", bound=Detect)
STAGES: tuple[Stage, ...] = ("exact", "fit", "place", "level")


@dataclass(frozen=True)
class Detector:
    """A function from the view of a batch to evidence, with the cause that it names.

    Attributes
    ----------
    name : str
    stage : {"exact", "fit", "place", "level"}
    detect : callable
        Takes a `View`; returns `Evidence`, several, or None.
    """

    name: str
    stage: Stage
    detect: Detect

    def evidence(self, view: View) -> list[Evidence]:
        """Run the detector."""
        result = self.detect(view)
        if result is None:
            return []
        return [result] if isinstance(result, Evidence) else list(result)


DETECTORS: dict[str, Detector] = {}


def register(name: str, *, stage: Stage = "place") -> Callable[[D], D]:
    """Add a detector; it takes part in every later `diagnose`.

    Parameters
    ----------
    name : str
        The cause that it names. A detector of the same name is replaced.
    stage : {"exact", "fit", "place", "level"}
        When it runs: exact evidence first, the level of the mismatch last.

    Examples
    --------
    A custom detector: tokens after position 100 differ.

    >>> import rounddiag as rd
    >>> @rd.findings.register("late_tokens")
    ... def late_tokens(view):
    ...     late, size = view.position > 100, view.abs_diff
    ...     if not late.any() or size[late].mean() < 3 * size[~late].mean():
    ...         return None
    ...     return rd.findings.Evidence(
    ...         score=0.9,
    ...         tokens=late,
    ...         explanation="Tokens after position 100 differ three times as much.",
    ...         next_step="Compare the position ids of both engines.",
    ...     )
    >>> "late_tokens" in rd.findings.DETECTORS
    True
    >>> del rd.findings.DETECTORS["late_tokens"]
    """

    def add(detect: D) -> D:
        DETECTORS[name] = Detector(name, stage, detect)
        return detect

    return add
