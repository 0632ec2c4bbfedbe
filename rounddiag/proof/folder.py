"""By file: what another machine scores under hypotheses, and how it writes the scores.

A folder has `samples.jsonl` and `images/` (exact ids and pictures), `requests.jsonl`
(one pass of one sample under one hypothesis a line) and, once scored, `scores.jsonl`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm.auto import tqdm

from rounddiag.batch import Batch
from rounddiag.batch.batch import require_batch
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.rescoring import BASE, SCORES, require_ids, write_samples
from rounddiag.proof.engines.opening import open_engine
from rounddiag.proof.engines.pictures import with_spans
from rounddiag.proof.hypotheses import all_registered, select_hypotheses
from rounddiag.proof.hypotheses.sampling import FAMILIES
from rounddiag.proof.hypotheses.weights import weight_hypotheses
from rounddiag.proof.recorded import LOW_PRECISION, name_of
from rounddiag.proof.samples import choose_samples
from rounddiag.proof.scorer import Scorer
from rounddiag.vision import EncodedScreenshot

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rounddiag._typing import Array
    from rounddiag.proof.hypotheses import Hypothesis
    from rounddiag.proof.hypotheses.hypothesis import Need
    from rounddiag.proof.trajectory import Request, Samples, Trajectory

REQUESTS = "requests.jsonl"
NUM_SAMPLES = 5
_AUTO = "auto"


class _Elsewhere:
    """The engine that will score a folder: all but what only a model can tell.

    Which ids earlier rounds or pictures of other sizes have, the file cannot say.
    """

    name = "an engine elsewhere"
    abilities: frozenset[Need] = frozenset(
        {"logits", "positions", "pictures", "features", "rotary", "weights", "experts"}
    )

    def prepare(self, one: Trajectory) -> Trajectory:
        return with_spans(one)

    def score(self, requests: Sequence[Request], samples: Samples) -> list[Array]:
        raise NotImplementedError


def export_rescore(
    batch: Batch,
    folder: str | os.PathLike[str],
    *,
    hypotheses: str | Iterable[str] | None = None,
    samples: int | Sequence[int] = NUM_SAMPLES,
) -> None:
    """Write exact token ids and screenshots, for another engine to score.

    Only a third score of identical tokens shows which of two engines is wrong. Ids are
    written as numbers and never pass through text, so they stay the same.

    `samples.jsonl` has one record per sample:

    ===================  =========================================================
    `sample`             index in the batch
    `sample_id`          null if the batch has none
    `prompt_ids`         null if the batch has none
    `response_ids`
    `response_mask`
    `images`             names of PNG files under `images/`, one per screenshot;
                         null for a screenshot that could not be written
    `image_positions`    of the first image token in the response; negative in the
                         prompt (-1 is its last token), null if unknown
    `image_errors`       why a screenshot could not be written, else null
    `image_sizes`        width and height at which the model saw it
    `position_ids`       null if the batch has none
    ===================  =========================================================

    With `hypotheses`, `requests.jsonl` has one line per pass of a sample under a
    hypothesis, and `python -m rounddiag.proof score FOLDER --model MODEL` scores them
    on any machine with rounddiag and a model or a server. `attach` reads its
    `scores.jsonl`, and `prove(batch)` judges without a model:

    ===================  =========================================================
    `sample`, `change`   the sample, and the name of the hypothesis; `base` is none
    `ids`                what the engine reads
    `scored`             indices in `ids` of the tokens whose log-prob is wanted
    `source`             index of each of these in prompt and response
    `images`             names of PNG files, and how they look: `seen`, `pad`
                         (no pixels: the embedding of the image token), `zeros`
    `positions`          of the ids in a text; null if they are the usual ones, or
                         `change` if only a model can tell them: see `setting` too
    `setting`            of the engine, such as `rotary_bfloat16`; empty if none
    ===================  =========================================================

    Screenshots are written as the batch has them: `capture.save_batch` stores them
    smaller than the model saw them. Left out are hypotheses whose ids only the model
    tells: rounds rendered again, pictures with other numbers of image tokens.

    Parameters
    ----------
    batch : Batch
        All of a batch, or a selection such as `batch[:8]`.
    folder : path-like
        A new or empty folder.
    hypotheses : "auto" or iterable of str, optional
        Names of hypotheses or of causes; `"auto"` takes all.
    samples : int or sequence of int
        How many samples to score under hypotheses (those with the largest mismatch, and
        controls), or which ones.

    Raises
    ------
    BatchError
        If the folder is not empty, or the batch was redacted; with `hypotheses` also if
        no sample can be scored.

    See Also
    --------
    attach : Adds the scores. `rounddiag recipe rescore-vllm` and `rescore-transformers`
        print complete scripts.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_rescore(batch[:2], folder)
    ...     print(*sorted(file.name for file in Path(folder).iterdir()))
    images samples.jsonl
    """
    require_batch(batch)
    path = Path(folder)
    if hypotheses is None:
        write_samples(batch, path)
        return
    require_ids(batch, "Export from the batch that it was made of.")
    scorer = Scorer(batch, _Elsewhere())
    names = None if hypotheses == _AUTO else hypotheses
    known = select_hypotheses(all_registered(), names)
    chosen = choose_samples(scorer, samples)
    lines = list(_requests(scorer, known, chosen))
    wanted = {
        (each.sample, each.index)
        for sample in chosen
        for one in (None, *known)
        for request in _passes(scorer, one, sample)
        for each in request.pictures
    }
    touched = wanted | {
        (one.sample, index)
        for one in scorer.samples.known
        for index in range(len(one.shots))
    }
    write_samples(batch, path, lambda sample, index: (sample, index) in touched)
    with (path / REQUESTS).open("w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)


def _passes(scorer: Scorer, one: Hypothesis | None, sample: int) -> Sequence[Request]:
    if one is not None and scorer.lacks(one):
        return ()
    return scorer.requests(() if one is None else (one,), sample) or ()


def _requests(
    scorer: Scorer, known: Sequence[Hypothesis], samples: Sequence[int]
) -> Iterator[dict[str, Any]]:
    for sample in samples:
        for one in (None, *known):
            name = BASE if one is None else one.name
            for request in _passes(scorer, one, sample):
                yield _line(request, name)


def _line(request: Request, name: str) -> dict[str, Any]:
    scored = request.is_scored.clone()
    scored[0] = False
    at = scored.nonzero()[:, 0]
    positions: Any = None
    if request.places is not None:
        positions = "change"
        if not request.pictures:
            usual = torch.arange(len(request.ids))[None]
            sample = torch.arange(int(request.source.max()) + 1)[None]
            positions = request.places(usual, sample)[0].tolist()
    return {
        "sample": request.sample,
        "change": name,
        "ids": request.ids.tolist(),
        "scored": at.tolist(),
        "source": request.source[at].tolist(),
        "images": [
            [f"images/{one.sample:05}-{one.index:03}.png", one.look]
            for one in request.pictures
        ],
        "positions": positions,
        "setting": request.setting,
    }


def read_samples(folder: Path) -> Batch:
    """Return the samples of a folder as a batch, with log-probs of 0."""
    path = folder / "samples.jsonl"
    try:
        with path.open(encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        rows = [torch.tensor(one["response_ids"]) for one in records]
        prompts = [one["prompt_ids"] for one in records]
        saved = [one.get("position_ids") for one in records]
        return Batch.from_rows(
            response_ids=rows,
            response_mask=[torch.tensor(one["response_mask"]) for one in records],
            old_log_probs=[torch.zeros(len(row)) for row in rows],
            rollout_log_probs=[torch.zeros(len(row)) for row in rows],
            prompt_ids=None
            if None in prompts
            else [torch.tensor(one, dtype=torch.int64) for one in prompts],
            position_ids=None if None in saved else tuple(map(torch.tensor, saved)),
            images=_read_images(folder, records),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError.build(
            file=path,
            expected="samples as `rounddiag.export_rescore` writes them",
            found=f"{type(error).__name__}: {error!s:.200}",
            advice="Export again into a new folder.",
        ) from error


def _read_images(
    folder: Path, records: Sequence[Mapping[str, Any]]
) -> list[list[EncodedScreenshot]] | None:
    if not any(one["images"] for one in records):
        return None
    found = []
    for one in records:
        sizes = one.get("image_sizes") or [None] * len(one["images"])
        shots = [
            EncodedScreenshot(
                data=b"" if name is None else (folder / name).read_bytes(),
                position=position,
                seen_size=None if size is None else (int(size[0]), int(size[1])),
            )
            for name, position, size in zip(
                one["images"], one["image_positions"], sizes, strict=True
            )
        ]
        found.append(shots)
    return found


def score_folder(
    folder: str | os.PathLike[str],
    engine: Any,  # noqa: ANN401 as of `prove`
    *,
    checkpoints: Mapping[str, str] | None = None,
    device: str = "auto",
) -> Path:
    """Score what a folder of `export_rescore(hypotheses=...)` asks for.

    Lines are added to `scores.jsonl` as they come: what was interrupted goes on where
    it was.
    """
    path = Path(folder)
    wanted = _read_wanted(path)
    batch = read_samples(path)
    opened = open_engine(engine, device=device)
    scorer = Scorer(batch, opened.engine, opened.low_precision)
    done = _read_done(path / SCORES)
    known = {one.name: one for one in all_registered()}
    jobs: list[tuple[int, str, tuple[Hypothesis, ...], bool]] = []
    for sample, change in wanted:
        chain: tuple[Hypothesis, ...] = () if change == BASE else (known[change],)
        if change == BASE or not scorer.lacks(known[change]):
            jobs.append((sample, change, chain, False))
    samples = sorted({sample for sample, _ in wanted})
    for sample in samples:
        if scorer.low_precision is not None:
            jobs.append((sample, LOW_PRECISION, (), True))
        jobs += [
            (sample, one.name, (one,), False)
            for one in weight_hypotheses(scorer, checkpoints)
        ]
        if "logits" in scorer.engine.abilities:
            jobs += [
                (sample, name_of(family, value), (family.at(value),), False)
                for family in FAMILIES
                for value in family.grid
            ]
    left = [job for job in jobs if (job[0], job[1]) not in done]
    with (path / SCORES).open("a", encoding="utf-8") as lines:
        for sample, change, chain, low_precision in tqdm(left, unit="pass", delay=1):
            values = scorer.scores(chain, sample, low_precision=low_precision)
            lines.write(f"{json.dumps(_scores_line(scorer, sample, change, values))}\n")
            lines.flush()
    return path / SCORES


def _read_wanted(folder: Path) -> list[tuple[int, str]]:
    path = folder / REQUESTS
    if not path.is_file():
        raise LoadError.build(
            file=path,
            expected="the passes to score",
            found="nothing",
            advice='Export with `hypotheses="auto"`.',
        )
    found: dict[tuple[int, str], None] = {}
    with path.open(encoding="utf-8") as lines:
        for text in lines:
            line = json.loads(text)
            found[int(line["sample"]), str(line["change"])] = None
    names = {one.name for one in all_registered()} | {BASE}
    unknown = sorted({change for _, change in found} - names)
    if unknown:
        raise BatchError.build(
            file=path,
            expected="hypotheses that this version of rounddiag has",
            found=", ".join(unknown),
            advice="Register them before, or use the version that exported.",
        )
    return list(found)


def _read_done(path: Path) -> set[tuple[int, str]]:
    """Return what was scored before; a line that was cut off is removed."""
    if not path.is_file():
        return set()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        path.write_text("".join(lines[:-1]), encoding="utf-8")
        lines.pop()
    records = map(json.loads, lines)
    return {(int(one["sample"]), str(one["change"])) for one in records}


def _scores_line(
    scorer: Scorer, sample: int, change: str, values: Array | None
) -> dict[str, Any]:
    """Return the line of a sample: null where the change has no place in it."""
    one = scorer.samples[sample]
    mask = scorer.batch.response_mask
    begin = int(scorer.batch.offsets[sample])
    size = int(scorer.batch.lengths[sample])
    at = (mask[begin : begin + size] != 0).nonzero()[:, 0]
    found: dict[int, float] = {}
    if values is not None:
        found = dict(
            zip((one.targets - one.start).tolist(), values.tolist(), strict=True)
        )
    numbers = [found.get(int(index), np.nan) for index in at]
    return {
        "sample": sample,
        "change": change,
        "token_ids": one.ids[at + one.start].tolist(),
        "log_probs": [None if np.isnan(each) else each for each in numbers],
    }
