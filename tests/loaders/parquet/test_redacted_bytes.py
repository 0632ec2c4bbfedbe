"""No byte of a redacted file is of a text, an id or a picture, wherever it was."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image, PngImagePlugin

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.capture import Recorder
from rounddiag.core.scores import select_scores
from rounddiag.vision import EncodedScreenshot
from tests.batches import padded, random_log_probs
from tests.loaders.values import objects

WORD = "Quokka"
ID = 1_181_655_777
AS_NUMBER = int.from_bytes(WORD.encode(), "little")


def picture() -> bytes:
    """Return a picture that has the word among its metadata."""
    facts = PngImagePlugin.PngInfo()
    facts.add_text("Comment", f"{WORD} {WORD}")
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG", pnginfo=facts)
    return buffer.getvalue()


def small(**others: Any) -> Batch:
    rollout = random_log_probs((3, 5), seed=0)
    mask = torch.tensor([[1, 1, 0, 1, 1]]).expand(3, 5)
    return padded(mask, rollout + 0.01, rollout, **others)


def of_samples(*values: Any, name: str = "x") -> Batch:
    column = objects(*values) if len(values) == 3 else values[0]
    return small(sample_columns={name: column})


def of_rounds(name: str, values: np.ndarray[Any, Any]) -> Batch:
    keys = {"sample": np.arange(3), "round": np.zeros(3, dtype=np.int64)}
    return small(round_columns={**keys, name: values})


def ids(shape: tuple[int, ...] = (3, 5)) -> torch.Tensor:
    return torch.full(shape, ID)


def of_pandas(folder: Path) -> Batch:
    """A table whose metadata is that of pandas, with names of its own."""
    batch = small()
    table = pa.table(
        {
            "responses": [[ID] * 5] * 3,
            **{
                name: flat.reshape(3, 5).tolist()
                for name, flat in batch.per_token.items()
                if name != "response_ids"
            },
            f"{WORD} count": [ID, 0, ID + 1],
            "note": pa.array([WORD] * 3).dictionary_encode(),
        }
    )
    table = table.replace_schema_metadata({"pandas": f'{{"index": "{WORD}"}}'})
    pq.write_table(table, folder / f"{WORD}.parquet")
    return rd.load(folder / f"{WORD}.parquet")


def of_recorder(folder: Path) -> Batch:
    """A part of the samples that a trainer had, with the run's facts."""
    names = ("response_mask", "rollout_log_probs", "old_log_probs")
    fields = {name: small().per_token[name].reshape(3, 5) for name in names}
    uid = np.array([WORD] * 3, dtype=object)
    facts = {"model": WORD, "sampling": {WORD: 1.0, "temperature": 0.5}}
    with Recorder(folder / WORD, facts=facts, max_samples=2) as recorder:
        recorder.step(0, {"responses": ids(), **fields, "uid": uid})
    return rd.load(folder / WORD / "step_0.parquet")


def scored() -> Batch:
    batch = small()
    batch = replace(batch, scores={WORD: batch.log_probs("old") + 0.5})
    return select_scores(batch, WORD, "rollout")


TURNS = [("user", WORD), ("assistant", f"click {WORD}"), ("tool", WORD)]
SHOT = EncodedScreenshot(data=picture(), round=0, position=1)
ODD: dict[str, Callable[[Path], Batch]] = {
    "response ids": lambda _: replace(small(), response_ids=ids().flatten()),
    "prompt ids": lambda _: small(prompt_ids=ids((3, 2))),
    "the sampler's ids": lambda _: small(rollout_ids=(*ids((3, 4)),)),
    "turns": lambda _: Batch.from_turns([TURNS]),
    "turns with tokens": lambda _: Batch.from_turns(
        [[TURNS[0], ("assistant", WORD, [SHOT], [WORD[:3], WORD[3:]], [-1.0, -2.0])]]
    ),
    "pictures": lambda _: small(images=((SHOT,), (), (SHOT, SHOT))),
    "a tokenizer's path": lambda folder: small(tokenizer=folder / f"{WORD}.json"),
    "a function": lambda _: small(tokenizer=lambda _: WORD),
    "group ids": lambda _: small(group_ids=[WORD, f"{ID}", WORD]),
    "sample ids": lambda _: small(sample_ids=[f"{WORD}{i}" for i in range(3)]),
    "the name of a sample column": lambda _: of_samples(0.5, 1.5, 2.5, name=WORD),
    "the name of a round column": lambda _: of_rounds(f"{WORD}s", np.ones(3)),
    "the name of a token column": lambda _: small(
        token_columns={WORD: random_log_probs((3, 5), seed=1)}
    ),
    "the name of a score": lambda _: scored(),
    "a source": lambda _: small(meta={"source": f"/home/{WORD}/{ID}.pkl"}),
    "names of counts": lambda _: small(meta={f"num_{WORD}": 3, f"num_{ID}": 1}),
    "names of settings": lambda _: small(meta={"sampling": {WORD: 1.0}}),
    "settings": lambda _: small(
        meta={"sampling": {"temperature": WORD, "logprobs_mode": WORD, "top_k": [ID]}}
    ),
    "words of ours": lambda _: small(
        meta={"mask_source": WORD, "rounds": WORD, "num_dropped_rows": WORD}
    ),
    "checks": lambda _: small(
        meta={"checks": [{"name": WORD, "status": "failed", "detail": WORD}]}
    ),
    "nested facts": lambda _: small(meta={"facts": {"a": [{WORD: [ID]}]}, WORD: 1}),
    "a pair": lambda _: small(meta={"pair": [WORD, "rollout"]}),
    "what was left out": lambda _: small(meta={"left_out": {WORD: ID}}),
    "texts": lambda _: of_samples(WORD, None, f"{ID}"),
    "texts of fixed width": lambda _: of_samples(np.array([WORD] * 3)),
    "bytes": lambda _: of_samples(np.array([WORD.encode()] * 3)),
    "objects": lambda _: of_samples({WORD: ID}, [WORD], None),
    "times": lambda _: of_samples(np.array([AS_NUMBER] * 3, dtype="datetime64[ns]")),
    "a matrix": lambda _: of_samples(np.full((3, 2), ID)),
    "whole numbers": lambda _: of_samples(np.array([ID, ID, ID + 1])),
    "whole floats": lambda _: of_samples(np.array([ID, 0.0, np.nan])),
    "long integers": lambda _: of_samples(AS_NUMBER << 400, ID, None, name="row"),
    "a known name": lambda _: of_samples(np.array([AS_NUMBER, 0, 1]), name="rank"),
    "ids as numbers": lambda _: of_samples(np.array([ID, ID, 3]), name="userId"),
    "ids as texts": lambda _: of_samples(WORD, WORD, "x", name="session-id"),
    "ids of rounds": lambda _: of_rounds("requestID", np.array([WORD, "", WORD])),
    "texts of rounds": lambda _: of_rounds("action", objects(WORD, {WORD: 1}, None)),
    "ids of tokens": lambda _: small(token_columns={"value": ids(), "x": ids() * 1.0}),
    "round ids": lambda _: small(round_ids=ids()),
    "a table of pandas": of_pandas,
    "a file of a Recorder": of_recorder,
}


def secrets_in(path: Path) -> list[bytes]:
    """Return the secrets that a file has in its bytes, packed or not."""
    plain = path.with_name("plain.parquet")
    pq.write_table(pq.read_table(path), plain, compression="none", use_dictionary=False)
    secrets = [WORD.encode(), str(ID).encode()]
    secrets += [ID.to_bytes(4, "little"), np.float64(ID).tobytes()]
    secrets += [SHOT.data[at : at + 12] for at in range(8, len(SHOT.data) - 12, 12)]
    data = path.read_bytes() + plain.read_bytes()
    return [secret for secret in secrets if secret in data]


@pytest.mark.parametrize("odd", ODD.values(), ids=[*ODD])
def test_no_word_id_or_picture_is_in_the_bytes(
    odd: Callable[[Path], Batch], tmp_path: Path
) -> None:
    path = tmp_path / "redacted.parquet"
    rd.save(odd(tmp_path), path, redact=True)
    rd.load(path)
    assert secrets_in(path) == []


@pytest.mark.parametrize(
    "name", ["response ids", "turns", "pictures", "group ids", "whole floats", "texts"]
)
def test_they_are_found_where_nothing_is_left_out(name: str, tmp_path: Path) -> None:
    rd.save(ODD[name](tmp_path), tmp_path / "whole.parquet")
    assert secrets_in(tmp_path / "whole.parquet") != []


def test_a_field_that_is_not_listed_is_left_out(tmp_path: Path) -> None:
    """Each field that holds something is either in the list or gone."""
    batch = rd.load("sample_data/healthy.parquet")
    rd.save(batch, tmp_path / "a.parquet", redact=True)
    footer = pq.read_schema(tmp_path / "a.parquet")
    assert footer.names == [
        *("sample_id", "group_id", "reward", "response_mask", "rollout_log_probs"),
        *("old_log_probs", "round_columns"),
    ]
