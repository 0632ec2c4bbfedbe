"""The detectors by name, and how to add one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from rounddiag.findings.finding import Evidence
from rounddiag.findings.view import View

Detect: TypeAlias = Callable[[View], Evidence | Iterable[Evidence] | None]
Shown: TypeAlias = Literal["fact", "reversal"]
D = TypeVar("D", bound=Detect)


@dataclass(frozen=True)
class Detector:
    """A function from the view of a batch to evidence, with the cause that it names.

    Attributes
    ----------
    detect: Takes a `View`; returns `Evidence`, several, or None.
    """

    name: str
    kind: Shown
    detect: Detect

    def evidence(self, view: View) -> list[Evidence]:
        """Run the detector."""
        result = self.detect(view)
        if result is None:
            return []
        return [result] if isinstance(result, Evidence) else list(result)


DETECTORS: dict[str, Detector] = {}


def register(name: str, *, kind: Shown) -> Callable[[D], D]:
    """Add a detector; it takes part in every later `diagnose`.

    Parameters
    ----------
    name : str
        The cause that it names. A detector of the same name is replaced.
    kind : {"fact", "reversal"}
        A fact is decided by values, ids, masks or columns. A reversal undoes a change;
        it counts only if it brings its tokens back to the batch's own noise.

    Examples
    --------
    A custom fact: log-probs that are exactly -1.

    >>> import rounddiag as rd
    >>> @rd.findings.register("minus_one", kind="fact")
    ... def minus_one(view):
    ...     tokens = view.log_prob_b == -1
    ...     if tokens.sum() < 20:
    ...         return None
    ...     return rd.findings.Evidence(
    ...         tokens=tokens,
    ...         shown="`rollout` is -1 at 20 tokens or more.",
    ...         next_step="Find where the sampler's log-probs are filled.",
    ...     )
    >>> "minus_one" in rd.findings.DETECTORS
    True
    >>> del rd.findings.DETECTORS["minus_one"]
    """

    def add(detect: D) -> D:
        DETECTORS[name] = Detector(name, kind, detect)
        return detect

    return add
