"""`preflight`: does a model agree with a server, before anything is trained.

A server samples episodes of its own, the model in the trainer's place scores the same
ids, and each line of one table compares two things that a run needs to be equal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from rounddiag.batch import Batch
from rounddiag.errors import BatchError
from rounddiag.findings import Diagnosis, diagnose
from rounddiag.findings.verdict import Verdict, is_at_least
from rounddiag.loaders import load
from rounddiag.proof.comparisons import COMPARISONS, compare
from rounddiag.proof.engines.client import Host
from rounddiag.proof.engines.dialects import Sampling
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.opening import open_engine, open_low_precision
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.episodes import make_episodes, read_episodes
from rounddiag.proof.experiment import prove as prove_cause
from rounddiag.proof.flight import Flight, Line
from rounddiag.proof.noise import RoundingNoise
from rounddiag.proof.playing import ROUND_TOKENS, as_batch, play
from rounddiag.proof.proof import Proof
from rounddiag.proof.readings import compare_ids, compare_images, read_prompts
from rounddiag.proof.rescoring import rescore_with
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.trainer import score_with_command, score_with_function
from rounddiag.wording import join_names, pluralize, printable


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Preflight:
    """The result of `rounddiag.preflight`.

    Attributes
    ----------
    frame: One row a check: `check, result, value, limit, where, why`. `result` is
        `passes`, `fails` or `could not be tested`; `value` and `limit` are mean |diff|
        in nats, or numbers of tokens and pictures. `where` is the task, round and
        picture of the first difference, `why` what was found and the ground of the
        limit.
    batch: The episodes, with the log-probs of the server (`rollout`) and of the model
        (`old`): `rounddiag.explore` opens them.
    diagnosis: Of this batch.
    server: What sampled, and at which host.
    num_sent: How many pictures were sent there.
    proof: With `prove=True`, where a check or the verdict fails: which engine was
        wrong, and about what.
    """

    frame: pd.DataFrame
    batch: Batch
    diagnosis: Diagnosis
    server: str
    num_sent: int
    seconds: float
    proof: Proof | None = None

    @property
    def passed(self) -> bool:
        """Whether no check fails, ids and images were tested, and the verdict is good.

        Good is better than suspicious.
        """
        is_bad = is_at_least(self.diagnosis.verdict, "suspicious")
        return not (self.failed or self.untested or is_bad)

    @property
    def untested(self) -> tuple[str, ...]:
        """Those of `ids` and `images` that could not be tested."""
        rows = self.frame[self.frame["result"] == "could not be tested"]
        return tuple(name for name in ("ids", "images") if name in {*rows["check"]})

    @property
    def failed(self) -> tuple[str, ...]:
        """The checks that fail."""
        return tuple(self.frame.loc[self.frame["result"] == "fails", "check"])

    def __repr__(self) -> str:
        return self.describe()

    def describe(self, fail_on: Verdict = "suspicious") -> str:
        """Return the table and the verdict as text.

        Parameters
        ----------
        fail_on : str
            The least verdict that fails.
        """
        lines = []
        for row in self.frame.to_dict("records"):
            where = f"{row['where']}: " if row["where"] else ""
            lines.append(
                f"{row['check']:<10}  {row['result']:<19}  {where}{row['why']}"
            )
        verdict = self.diagnosis.verdict
        said = self.diagnosis.text.partition("\n")[0]
        lines.append(f"{'verdict':<10}  {verdict:<19}  {said}")
        if self.proof is not None:
            lines += repr(self.proof).split("\n")
        sent = f"Sent: {pluralize(self.num_sent, 'picture')} to {self.server}."
        lines.append(sent if self.num_sent else f"Sampled by {self.server}.")
        failed = list(self.failed)
        if is_at_least(verdict, fail_on):
            failed.append(f"the verdict is {verdict}")
        names = join_names(failed) if failed else ""
        end = f"failed: {names}" if failed else "passed: no check fails"
        if self.untested and not failed:
            end = f"no check fails; {join_names(self.untested)} could not be tested"
        lines.append(end)
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        body = "<br>".join(escape(line) for line in repr(self).split("\n"))
        return f'<div class="mathjax_ignore"><p>{body}</p></div>'


def preflight(
    model: Any,  # noqa: ANN401 a name or an engine
    server: str,
    *,
    episodes: str | os.PathLike[str] | Batch | None = None,
    scorer: str | Callable[..., Any] | None = None,
    after: str | None = None,
    prove: bool = False,
    seed: int = 0,
) -> Preflight:
    """Say whether a model and a server agree, before anything is trained.

    Parameters
    ----------
    model : str, path-like or LocalEngine
        The model in the trainer's place: a folder or name that transformers opens.
    server : str
        The address of a running vLLM or SGLang that has the same model, such as
        `http://127.0.0.1:8000`. Screenshots of the episodes are sent there, and nowhere
        else.
    episodes : path-like or Batch, optional
        What to sample instead of the program's own episodes: any file that
        `rounddiag.load` opens, with token ids. Of its first four samples the prompts
        and observations are taken, four rounds each.
    scorer : str or callable, optional
        What scores in the trainer's place instead of the model. A function `(ids,
        images, positions) -> log-probs`, one for each id; or a command, which gets the
        folder that `rounddiag.export_rescore` writes as its last argument, and writes
        `scores.jsonl` there.
    after : str, optional
        A command that syncs weights to the server. It gets the folder of a LoRA adapter
        as peft writes one as its last argument: first of a known change, then of none.
    prove : bool
        Whether to prove the cause of what fails (`rounddiag.prove`).
    seed : int
        Of the screenshots of the episodes, and of the adapter.

    Returns
    -------
    Preflight

    Raises
    ------
    BatchError
        If the model or the episodes cannot be used.
    LoadError
        If the model cannot be opened, or the server does not answer.
    """
    begin = time.perf_counter()
    engine = _require_model(open_engine(model))
    sampler = ServerEngine.open(Host.at(server))
    given = episodes if isinstance(episodes, Batch | None) else load(episodes)
    tasks = (
        make_episodes(engine, seed) if given is None else read_episodes(given, engine)
    )
    how = Sampling(num_tokens=ROUND_TOKENS)
    played = play(sampler, engine, tasks, how)
    batch = as_batch(played, engine, sampler, how)
    own = Scorer(batch, engine, open_low_precision(engine))
    noise = RoundingNoise.of_table(own.table(dict.fromkeys(range(len(batch)))))
    flight = Flight(
        server=sampler,
        engine=engine,
        episodes=tasks,
        played=played,
        scorer=own,
        batch=_score(scorer, own),
        noise=noise,
        packs=scorer if callable(scorer) else None,
        after=after,
        seed=seed,
        sampling={} if given is None else given.meta.get("sampling", {}),
    )
    lines = _run_checks(flight)
    diagnosis = diagnose(flight.batch)
    fails = any(line.result == "fails" for line in lines)
    is_bad = fails or is_at_least(diagnosis.verdict, "suspicious")
    proof = None
    if prove and is_bad:
        pair = replace(flight.batch, scores={})  # the prefill is no third engine
        proof = prove_cause(pair, own.about(pair))
    sent = {id(shot) for each in played for shot in each.rounds[-1].shots}
    return Preflight(
        frame=pd.DataFrame([asdict(line) for line in lines]),
        batch=flight.batch,
        diagnosis=diagnosis,
        server=sampler.name,
        num_sent=len(sent),
        seconds=time.perf_counter() - begin,
        proof=proof,
    )


def _score(scorer: str | Callable[..., Any] | None, own: Scorer) -> Batch:
    if scorer is None:
        return rescore_with(own)
    if isinstance(scorer, str):
        return score_with_command(scorer, own.batch)
    return score_with_function(scorer, own)


# In the order in which they are printed.
_CHECKS = (
    "ids",
    "images",
    "log-probs",
    "prefill",
    "cache",
    "batch",
    "sampling",
    "packed",
    "weights",
)


def _run_checks(flight: Flight) -> list[Line]:
    number = sum(len(episode.prompts) for episode in flight.episodes)
    total = number + len(_CHECKS)
    with tqdm(total=total, desc="comparing", leave=False, delay=1) as bar:
        readings = read_prompts(flight, bar.update)
        lines = {
            "ids": compare_ids(flight, *readings),
            "images": compare_images(flight, *readings),
        }
        bar.update(len(lines))
        for name in COMPARISONS:
            bar.set_description(f"comparing {name}")
            lines[name] = compare(name, flight)
            bar.update()
    return [lines[name] for name in _CHECKS]


def _require_model(engine: object) -> LocalEngine:
    if isinstance(engine, LocalEngine):
        return engine
    raise BatchError.build(
        key="model",
        expected="a folder or name that transformers opens",
        found=f"a {type(engine).__name__}",
        advice="Pass the model that the server has; the server itself is the second"
        " argument.",
    )
