"""`open_run` and `Run`: the steps of a training, as a folder of step files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from threading import RLock
from typing import NoReturn
from urllib.parse import quote

import pandas as pd

from rounddiag.batch import Batch
from rounddiag.batch.html import table
from rounddiag.core.scores import tag_as
from rounddiag.errors import LoadError, RounddiagError
from rounddiag.findings.reference import guess_kind, named_range
from rounddiag.loaders.assembly.join_hint import check_order
from rounddiag.loaders.parquet.reader import load_sample, require_sample
from rounddiag.runs.change_points import Break, find_breaks, find_changes
from rounddiag.runs.diagnosis import (
    Event,
    RunDiagnosis,
    choose_steps,
    diagnose_step,
    find_events,
    hold_verdicts,
    judged_by,
)
from rounddiag.runs.engines import RunEngine, check_engine
from rounddiag.runs.folder import RunFolder, StepFiles
from rounddiag.runs.growth import describe_growth
from rounddiag.runs.index import Index
from rounddiag.runs.step_tables import load_step, measure_legs, measure_step, step_frame
from rounddiag.schema import RUN, Pair, metric_name
from rounddiag.text.tokenizers import decoder
from rounddiag.wording import join_names, pluralize, printable

# So much of the files is read at a time; in memory their columns are far larger.
_BYTES_AT_ONCE = 1 << 26


def open_run(
    path: str | os.PathLike[str],
    *,
    engine: RunEngine = "local",
    sample_by: str | Sequence[str] | None = None,
    order_by: str | None = None,
    tokenizer: object | None = None,
) -> Run:
    """Open the step files of a training as one run.

    Parameters
    ----------
    path : path-like or str
        The folder that a `Recorder` or `rounddiag.ingest` filled, a glob, or a URL that
        fsspec knows, such as `s3://bucket/run`. A folder of a framework's own files
        works too, more slowly: `rounddiag.ingest` converts them.
    engine : {"local", "ray"}
        Where summaries are computed: in this process, or on the workers of a Ray
        cluster, which need to see the same files.
    sample_by : str or sequence of str, optional
        As in `rounddiag.load`, for files with one row per step of a trajectory. Tables
        are then computed from whole files, which takes longer than to read footers:
        `rounddiag.ingest(path, folder, sample_by=...)` joins the rows once.
    order_by : str, optional
        As in `rounddiag.load`, with `sample_by`.
    tokenizer : object, optional
        As in `rounddiag.load`: the text of batches and samples.

    Returns
    -------
    Run
        Only the names of the files have been read.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for step, name in enumerate(["healthy", "image_window"]):
    ...         batch = rd.load(f"sample_data/{name}.parquet")
    ...         rd.save(batch, f"{folder}/step_{step}.parquet")
    ...     run = rd.open_run(folder)
    ...     run.steps, len(run.summary()), run.batch(1).num_samples
    ((0, 1), 16, 64)
    """
    check_engine(engine)
    decoder(tokenizer)  # one that cannot be opened is an error now
    check_order(sample_by, order_by)
    columns = (sample_by,) if isinstance(sample_by, str) else tuple(sample_by or ())
    folder = RunFolder(path, columns, order_by)
    return Run(folder, engine=engine, tokenizer=tokenizer)


def run_in(path: str | os.PathLike[str]) -> Run | None:
    """Return the run of a folder with several of our step files, else None."""
    if not Path(path).is_dir():
        return None
    try:
        folder = RunFolder(path)
        run = None if folder.is_raw else Run(folder, engine="local", tokenizer=None)
    except LoadError:  # no step files, or several of one step
        return None
    return run if run is not None and len(run.steps) > 1 else None


def _table_name(*parts: str) -> str:
    """Name a table of the index; `quote` leaves no comma in a part."""
    return ",".join(quote(part, safe="") for part in parts)


def _diagnoses_name(kind: str | None) -> str:
    return _table_name("diagnoses", judged_by(), *([kind] if kind else []))


class Run:
    """The steps of a training; made by `open_run`.

    Summaries are computed once per step file and kept in the user's cache folder:
    `ROUNDDIAG_CACHE`, else `rounddiag` in `XDG_CACHE_HOME` or `~/.cache`. It can be
    deleted at any time.
    """

    def __init__(
        self, folder: RunFolder, *, engine: RunEngine, tokenizer: object | None
    ) -> None:
        self._folder = folder
        self._tokenizer = tokenizer
        self._index = Index(folder, engine)
        self._files = {files.step: files for files in folder.steps()}
        self._lock = RLock()  # an explorer looks for new steps in a thread

    @property
    def path(self) -> str:
        """The folder, glob or URL."""
        return self._folder.address

    @property
    def is_raw(self) -> bool:
        """Whether the files are those of a framework."""
        return self._folder.is_raw

    @property
    def steps(self) -> tuple[int, ...]:
        """The training steps that have a file, in order."""
        return tuple(self._files)

    @property
    def failed(self) -> dict[int, str]:
        """Steps whose files could not be read, with the errors."""
        return self._index.failed

    @property
    def is_away(self) -> bool:
        """Whether the folder is gone, or has no files, as one that is not mounted."""
        return self._folder.is_away

    def refresh(self) -> tuple[int, ...]:
        """Look for files again; return the steps that are new or were rewritten."""
        known = {files.stamp for files in self._files.values()}
        self._files = {files.step: files for files in self._folder.steps()}
        return tuple(s for s, files in self._files.items() if files.stamp not in known)

    def watch(
        self, *, every: float = 5.0, timeout: float | None = None
    ) -> Iterator[int]:
        """Yield each step whose file appears or is rewritten, while training goes on.

        A folder that is away is waited for.

        Parameters
        ----------
        every : float
            Seconds between two reads of the folder.
        timeout : float, optional
            Seconds without a new step after which it ends; never if left out.

        Yields
        ------
        int
            The step. Its file is complete: files get their names at the end.
        """
        last = time.monotonic()
        known = {step.stamp for step in self._files.values()}
        while timeout is None or time.monotonic() - last < timeout:
            try:
                self.refresh()  # elsewhere it may have been called too
            except LoadError:
                if not self.is_away:
                    raise
            files = [*self._files.values()]
            for step in files:
                if step.stamp not in known:
                    yield step.step
                    last = time.monotonic()
            known = {step.stamp for step in files}
            time.sleep(every)

    def batch(self, step: int) -> Batch:
        """Read the batch of a step.

        It has no results of checks: `rounddiag.check(batch)` runs them.
        """
        return load_step(self._folder, self._step(step), tokenizer=self._tokenizer)

    def sample(self, step: int, sample: int | str) -> Batch:
        """Read one sample of a step by its number or id, as a batch of one sample.

        By number, only the part of the file with the sample is read, if the file is a
        step file.
        """
        if isinstance(sample, str):
            return self.batch(step)[sample]
        files = self._step(step)
        if self._folder.is_read_whole or len(files.files) > 1:
            batch = self.batch(step)
            require_sample(sample, len(batch))
            return batch[sample]
        single = load_sample(self._folder.fetch(files.files[0]), sample)
        tokenizer = self._tokenizer
        return single if tokenizer is None else replace(single, tokenizer=tokenizer)

    def summary(
        self,
        *,
        metric: str = "abs_diff",
        by: str | None = None,
        a: str = "old",
        b: str = "rollout",
    ) -> pd.DataFrame:
        """Summarise each round of each step, with the columns of `schema.RUN`.

        The first call reads the footer of each file, which has the totals; of a
        framework's files, or for another metric, column or pair, it reads the masks and
        the log-probabilities. Later ones read the index, and files that are new. A step
        whose file cannot be read is left out with a warning, and is in `failed`.

        Parameters
        ----------
        metric : str
            As in `rounddiag.round_summary`, but not `round_change`: a run reads no
            pictures.
        by : str, optional
            A column of samples or rounds: one row per step, value and round.
        a, b : str
            The scores to compare, as in `rounddiag.round_summary`.

        Returns
        -------
        DataFrame
            One row per step and round, in order: `step`, and the columns of
            `rounddiag.round_summary`.
        """
        metric, pair = metric_name(metric), Pair(a, b)
        usual = (metric, by, pair.is_standard) == ("abs_diff", None, True)
        scores = () if pair.is_standard else (a, b)
        name = "rounds" if usual else _table_name("rounds", metric, by or "", *scores)
        compute = partial(measure_step, self._folder, metric=metric, by=by, pair=pair)
        names = {name: "rounds", **({"steps": "steps"} if usual else {})}
        threads = 1 if usual or self._folder.is_read_whole else self._num_threads()
        with self._lock:
            files = [*self._files.values()]
            failed = self._index.fill(
                names, files, compute, label="summaries", num_threads=threads
            )
            rows = self._index.rows(name, files)
        if failed.keys() >= self._files.keys():
            raise LoadError(next(iter(failed.values())))
        if not len(rows):  # steps without tokens have no rounds
            rows = pd.DataFrame({c.name: pd.Series(dtype=c.dtype) for c in RUN.columns})
        return tag_as(rows, pair)

    def step_summary(self) -> pd.DataFrame:
        """Summarise each step, with the columns of `schema.STEPS`.

        Means of the mismatch are over the tokens of all rounds; `reward`, `entropy` and
        `length` (generated tokens per sample) are NaN where the files do not have them.
        """
        with self._lock:
            rounds = self.summary()
            return step_frame(rounds, self._index.rows("steps", self._files.values()))

    def legs(self) -> pd.DataFrame:
        """Return the factors of the ratio of each step: `step`, and `rounddiag.legs`.

        The first call reads the log-probabilities of each file; results are kept in the
        index.
        """
        with self._lock:
            files = [*self._files.values()]
            compute = partial(measure_legs, self._folder)
            self._index.fill({"legs": "legs"}, files, compute, label="legs")
            return self._index.rows("legs", files)

    def changes(self, *, metric: str = "abs_diff") -> pd.DataFrame:
        """Find the steps at which the mean of a round changes, or begins to grow.

        Parameters
        ----------
        metric : str
            As in `rounddiag.round_summary`.

        Returns
        -------
        DataFrame
            One row per change, with the columns of `schema.CHANGES`; see
            `rounddiag.runs.find_changes` for the test.
        """
        return find_changes(self.summary(metric=metric), metric=metric)

    def events(self) -> list[Event]:
        """Return the facts of the run that change: versions of engines, dtypes, layout.

        Facts are those that `Recorder(facts=...)` was given, and sampling parameters.
        Where the files have weight versions, also the steps at which these stop
        changing, change again, or go back.
        """
        return find_events(self.step_summary())

    def query(self, *_: object) -> NoReturn:
        """Raise: DuckDB reads the step files as they are."""
        raise RounddiagError.build(
            expected="a method of this version",
            found="`Run.query`, which 0.3.0 removed",
            advice="`rounddiag recipe sql` has the lines that query the files.",
        )

    def breaks(self, *, metric: str = "abs_diff") -> list[Break]:
        """Return the steps at which rounds change together: `changes`, joined."""
        changes = self.changes(metric=metric)
        return find_breaks(changes, self.steps, metric=metric_name(metric))

    def diagnose(
        self, steps: Sequence[int] | None = None, *, kind: str | None = None
    ) -> RunDiagnosis:
        """Diagnose steps as `rounddiag.diagnose` does, and say what changed.

        A step of 256 samples of 8192 positions takes seconds; results are kept in the
        index.

        Parameters
        ----------
        steps : sequence of int, optional
            All up to 40 when left out; of more, both sides of each break, and others
            evenly.
        kind : str, optional
            A key of `rounddiag.findings.REFERENCE`; guessed from each file when left
            out.

        Returns
        -------
        RunDiagnosis
            Prints the verdicts over the run, the steps at which rounds change, and in
            which steps each cause is found.
        """
        if kind is not None:
            named_range(kind)
        changes = self.changes()
        breaks = find_breaks(changes, self.steps, metric="abs_diff")
        chosen = choose_steps(self.steps, breaks) if steps is None else tuple(steps)
        files = [self._step(step) for step in chosen]
        name = _diagnoses_name(kind)
        compute = partial(diagnose_step, self._folder, kind=kind)
        tables = {name: "diagnoses", "rounds": "rounds", "steps": "steps"}
        self._index.fill(tables, files, compute, label="diagnoses")
        return RunDiagnosis(
            frame=hold_verdicts(self._index.rows(name, files)),
            num_steps=len(self.steps),
            breaks=tuple(breaks),
            changes=changes,
            events=tuple(self.events()),
            growth=describe_growth(self.step_summary()),
        )

    def verdicts(self) -> dict[int, str]:
        """Return the verdict of each step that `diagnose` has judged so far."""
        rows = self._index.rows(_diagnoses_name(None), self._files.values())
        if not len(rows):
            return {}
        held = hold_verdicts(rows)
        return dict(zip(held["step"].tolist(), held["verdict"].tolist(), strict=True))

    @cached_property
    def kind(self) -> tuple[str, bool]:
        """The kind of run, as `rounddiag.diagnose` has it, and whether a file says it.

        It is read from the first step whose file can be read.
        """
        self.summary()  # raises if no file can be read, and names the files
        first = next((s for s in self.steps if s not in self.failed), self.steps[0])
        return guess_kind(self.batch(first))

    def _step(self, step: int) -> StepFiles:
        if step not in self._files:
            names = join_names(self.steps, most=5)
            raise LoadError.build(
                file=self.path,
                key="step",
                expected=f"one of the steps {names}",
                found=repr(step),
                advice="`run.steps` lists them; `run.refresh()` looks for new ones.",
            )
        return self._files[step]

    def _num_threads(self) -> int:
        """Return how many files can be read at a time without filling the memory."""
        largest = max(files.num_bytes for files in self._files.values())
        return min(os.cpu_count() or 1, max(_BYTES_AT_ONCE // max(largest, 1), 1))

    def _facts(self) -> dict[str, str]:
        steps, num_bytes = self.steps, sum(f.num_bytes for f in self._files.values())
        facts = {
            "run": self.path,
            "steps": f"{len(steps):,}, from {steps[0]} to {steps[-1]}",
            "size": f"{num_bytes / 1e6:,.1f} MB",
        }
        if self._folder.is_raw:
            facts["files"] = "of a framework; `rounddiag.ingest` makes them faster"
        if self.failed:
            facts["failed"] = pluralize(len(self.failed), "step")
        return facts

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}: {value}" for name, value in self._facts().items())
        return printable(f"Run({facts})")

    def _repr_html_(self) -> str:
        return table(self._facts().items())
