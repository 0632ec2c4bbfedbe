"""Write a batch's exact token ids and screenshots, for another engine to score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from rounddiag.errors import BatchError, RounddiagError
from rounddiag.loaders.parquet.columns import BROKEN
from rounddiag.loaders.parquet.writer import write_atomically
from rounddiag.loaders.rescoring.attach_scores import need_ids

if TYPE_CHECKING:
    import os

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot


def record_of(batch: Batch, sample: int, place: Path) -> dict[str, Any]:
    """Write the screenshots of a sample below `place`, and return its record."""
    start = int(batch.offsets[sample])
    real = slice(start, start + int(batch.lengths[sample]))
    shots = () if batch.images is None else batch.images[sample]
    pictures = [
        _write(shot, place, f"images/{sample:05}-{index:03}.png")
        for index, shot in enumerate(shots)
    ]
    return {
        "sample": sample,
        "sample_id": None if batch.sample_ids is None else batch.sample_ids[sample],
        "prompt_ids": _prompt(batch, sample),
        "response_ids": batch.response_ids[real].tolist(),
        "response_mask": (batch.response_mask[real] != 0).int().tolist(),
        "images": [name for name, _ in pictures],
        "image_positions": [shot.position for shot in shots],
        "image_errors": [error for _, error in pictures],
    }


def _prompt(batch: Batch, sample: int) -> list[int] | None:
    ids, offsets = batch.prompt_ids, batch.prompt_offsets
    if ids is None or offsets is None:
        return None
    part: Tensor = ids[offsets[sample] : offsets[sample + 1]]
    found: list[int] = part.tolist()
    return found


def _write(shot: Screenshot, place: Path, name: str) -> tuple[str | None, str | None]:
    """Write a screenshot; return its name, or why there is none."""
    try:
        shot.image()  # what is stored as PNG would be passed on without a look at it
        data = shot.png()
    except (RounddiagError, *BROKEN) as error:
        return None, f"{error!s:.300}"
    (place / name).write_bytes(data)
    return name, None


def export_rescore(batch: Batch, folder: str | os.PathLike[str]) -> None:
    """Write token ids and screenshots for rescoring; `attach` takes what comes back.

    Only a third score of identical tokens says which of two engines is wrong. The ids
    are written as numbers and never pass through text, so that they stay the same.

    `samples.jsonl` has one record a sample: `sample`, `sample_id` (null where the batch
    has none), `prompt_ids` (null likewise), `response_ids`, `response_mask`, and three
    lists with an entry a screenshot: `images`, the names of PNG files under `images/`;
    `image_positions`, where its first image token stands in the response, counted back
    from the response's start if negative, null if unknown; `image_errors`, why it could
    not be written, null if it was. Screenshots are written as the batch has them:
    `capture.save_batch` makes them smaller than the model saw them.

    Parameters
    ----------
    batch : Batch
        All of a batch, or a selection such as `batch[:8]`.
    folder : path-like
        A folder that is new or empty.

    Raises
    ------
    BatchError
        If the folder has something in it, or the batch was redacted.

    Notes
    -----
    With vLLM. It writes an image token for each patch itself, so those that stand in a
    row become one; `IMAGE` is their id::

        import json
        from PIL import Image
        from vllm import LLM, SamplingParams

        llm = LLM("the/model")
        params = SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=1.0)
        with open("folder/samples.jsonl") as samples, open("scores.jsonl", "w") as out:
            for line in samples:
                sample = json.loads(line)
                ids = sample["prompt_ids"] + sample["response_ids"]
                follows = zip(ids, [None, *ids])
                kept = [t for t, last in follows if t != IMAGE or last != IMAGE]
                prompt = {"prompt_token_ids": kept}
                shots = [Image.open(f"folder/{name}") for name in sample["images"]]
                if shots:
                    prompt["multi_modal_data"] = {"image": [s.copy() for s in shots]}
                result = llm.generate(prompt, params)[0]
                size = len(sample["response_ids"])
                row = {"sample": sample["sample"], "sample_id": sample["sample_id"]}
                row["token_ids"] = list(result.prompt_token_ids[-size:])
                found = zip(row["token_ids"], result.prompt_logprobs[-size:])
                row["log_probs"] = [given[token].logprob for token, given in found]
                print(json.dumps(row), file=out)

    With transformers; a model that sees takes `AutoModelForImageTextToText`, and what
    its image processor makes of the screenshots::

        import json
        import torch
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained("the/model").eval()
        with open("folder/samples.jsonl") as samples, open("scores.jsonl", "w") as out:
            for line in samples:
                sample = json.loads(line)
                ids = torch.tensor([sample["prompt_ids"] + sample["response_ids"]])
                with torch.inference_mode():
                    logits = model(input_ids=ids).logits[0, :-1].float()
                chosen = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
                row = {"sample": sample["sample"], "sample_id": sample["sample_id"]}
                row["token_ids"] = sample["response_ids"]
                row["log_probs"] = chosen[len(sample["prompt_ids"]) - 1 :].tolist()
                print(json.dumps(row), file=out)

    Then `rd.attach(batch, "rescored", "scores.jsonl")`.

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
    place = Path(folder)
    _check(batch, place)
    (place / "images").mkdir(parents=True)
    numbers = tqdm(range(batch.num_samples), unit="sample", leave=False, delay=1)
    with (
        write_atomically(place / "samples.jsonl") as partial,
        partial.open("w", encoding="utf-8") as lines,
    ):
        for number in numbers:
            lines.write(f"{json.dumps(record_of(batch, number, place))}\n")


def _check(batch: Batch, place: Path) -> None:
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise BatchError.build(
            file=place,
            expected="a folder that is new or empty",
            found="one with files" if place.is_dir() else "a file",
            advice="Pass another folder: nothing is overwritten.",
        )
    need_ids(batch, "Export from the batch that it was made of.")
