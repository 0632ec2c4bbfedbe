"""Token ids: of the trainer, of the sampler, and `input_ids`; prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.sample_sequence import known_sequence
from rounddiag.checks.contracts import (
    Contract,
    Fault,
    UntestableError,
    fault_in,
    locate_token,
    require_tokens,
)
from rounddiag.segmentation import Rounds, find_rounds
from rounddiag.text import pieces, special_tokens
from rounddiag.text.tokenizers import resolve_tokenizer
from rounddiag.vision.image_tokens import IMAGE_PAD, TokenRuns
from rounddiag.wording import percent, pluralize


def decode_ids(
    token_ids: Sequence[int],
    tokenizer: object | None,
    *,
    starts: Sequence[int] = (),
) -> list[str]:
    """Return one piece of text a token; see `rounddiag.text.pieces`."""
    try:
        return pieces(token_ids, tokenizer, starts=starts, visible_whitespace=True)
    except Exception as error:  # any callable can be a tokenizer
        raise tokenizer_error(error) from error


def special_ids(tokenizer: object | None, texts: Collection[str]) -> dict[str, int]:
    """Return the ids of a tokenizer's special tokens with these texts."""
    if tokenizer is None:
        raise UntestableError(field="tokenizer")
    try:
        known = special_tokens(tokenizer)
    except Exception as error:  # any callable can be a tokenizer
        raise tokenizer_error(error) from error
    ids = {text: token_id for token_id, text in known.items() if text in texts}
    if not ids:
        why = f"its special tokens are none of {', '.join(texts)}"
        raise UntestableError(
            field="tokenizer", why=f"needs another `tokenizer`: {why}"
        )
    return ids


def tokenizer_error(error: Exception) -> UntestableError:
    """Return why a check that decodes ids tests nothing."""
    cause = error.__cause__ or error
    reason = f"{type(cause).__name__}: {cause!s:.80}"
    return UntestableError(field="tokenizer", why=f"the `tokenizer` fails: {reason}")


# Tokens on each side of a difference, for a message.
_CONTEXT = 5


def _as_input_ids(batch: Batch) -> Fault | None:
    """Report the comparison made by the loader: a Batch does not keep `input_ids`."""
    comparison = batch.meta.get("input_ids")
    if comparison is None:
        raise UntestableError(field="input_ids")
    return None if comparison == "equal" else Fault(str(comparison))


def _pairs(batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    if batch.rollout_ids is None:
        raise UntestableError(field="rollout_ids")
    ids = batch.require_ids()
    begins, lengths = batch.offsets.tolist(), batch.lengths.tolist()
    for begin, length, rollout in zip(begins, lengths, batch.rollout_ids, strict=False):
        yield ids[begin : begin + length].cpu(), rollout.cpu()


_Ids = dict[int, tuple[Tensor, Tensor]]  # by sample: the trainer's, the sampler's


def _other_ids(batch: Batch, *, in_images: bool) -> _Ids:
    """Return the ids of samples that differ: in image tokens alone, or otherwise."""
    token = None
    with suppress(UntestableError):
        token = special_ids(batch.tokenizer, [IMAGE_PAD])[IMAGE_PAD]
    return {
        sample: ids
        for sample, ids in enumerate(_pairs(batch))
        if not torch.equal(*ids) and _is_of_images(*ids, token) == in_images
    }


def _is_of_images(own: Tensor, rollout: Tensor, token: int | None) -> bool:
    """Return whether only the number of image tokens differs.

    Without a tokenizer that names it, the image token is the one whose runs of several
    are of other lengths, where nothing else differs.
    """
    token = _uneven_token(own, rollout) if token is None else token
    if token is None or len(own) == len(rollout):
        return False
    return torch.equal(own[own != token], rollout[rollout != token])


def _uneven_token(own: Tensor, rollout: Tensor) -> int | None:
    first, second = (TokenRuns.of_ids(ids.numpy()) for ids in (own, rollout))
    if not np.array_equal(first.token, second.token):
        return None
    differs = first.length != second.length
    tokens = np.unique(first.token[differs])
    is_run = np.minimum(first.length, second.length)[differs].min() > 1
    return int(tokens[0]) if is_run and len(tokens) == 1 else None


def _image_tokens(batch: Batch) -> Fault | None:
    differing = _other_ids(batch, in_images=True)
    if not differing:
        return None
    sample, ids = next(iter(differing.items()))
    own, rollout = (Counter(row.tolist()) for row in ids)
    (image,) = {*(own - rollout), *(rollout - own)}
    return Fault(
        f"{pluralize(len(differing), 'sample')} with another number of image tokens and"
        f" the same text: sample {sample} has {own[image]:,} by the trainer and"
        f" {rollout[image]:,} by the sampler",
        tuple(differing),
    )


def _lengths(batch: Batch) -> Fault | None:
    differing = _other_ids(batch, in_images=False).items()
    sizes = {sample: tuple(map(len, ids)) for sample, ids in differing}
    sizes = {sample: (a, b) for sample, (a, b) in sizes.items() if a != b}
    if not sizes:
        return None
    sample, (own, rollout) = next(iter(sizes.items()))
    return Fault(
        f"{pluralize(len(sizes), 'sample')} with another length: sample {sample} has"
        f" {pluralize(own, 'token')} by the trainer and {rollout:,} by the sampler",
        tuple(sizes),
    )


def _ids(batch: Batch, *, as_text: bool) -> Fault | None:
    others = _other_ids(batch, in_images=False)
    differing = {
        sample: at
        for sample, ids in others.items()
        if (at := _first_difference(*ids)) is not None
    }
    if not differing:
        return None
    sample, position = next(iter(differing.items()))
    place = locate_token(batch, int(batch.offsets[sample]) + position)
    words = _describe(*others[sample], position, batch.tokenizer if as_text else None)
    return Fault(
        f"{pluralize(len(differing), 'sample')} with other ids: {place}, {words}",
        tuple(differing),
    )


def _first_difference(own: Tensor, rollout: Tensor) -> int | None:
    common = min(len(own), len(rollout))
    apart = (own[:common] != rollout[:common]).nonzero()
    return int(apart[0]) if len(apart) else None


def _describe(
    own: Tensor, rollout: Tensor, position: int, tokenizer: object | None
) -> str:
    first, stop = max(position - _CONTEXT, 0), position + _CONTEXT
    parts = (own[first:position], own[position:stop], rollout[position:stop])
    before, trainer, sampler = (_text(ids.tolist(), tokenizer) for ids in parts)
    return f"after {before} the trainer has {trainer} and the sampler {sampler}"


def _text(ids: list[int], tokenizer: object | None) -> str:
    try:
        texts = decode_ids(ids, tokenizer)
    except UntestableError:  # show the ids instead
        texts = decode_ids(ids, None)
    return "|".join(texts) or "nothing"


INPUT_IDS = Contract(
    "prompt and response are `input_ids`",
    "input_ids",
    _as_input_ids,
    effect="the trainer scores other ids than the sampler wrote",
    kind="bug",
    cause="prompt_mismatch",
    advice="Score the ids that the sampler used.",
)
_RETOKENISED = partial(
    Contract,
    effect="the engines score different tokens, and their ratio means nothing",
    kind="bug",
    cause="retokenised",
    advice="Train on the ids that the engine returned, never on text encoded again.",
)
IMAGE_TOKENS = Contract(
    "both engines have the same number of image tokens",
    "rollout_ids",
    _image_tokens,
    effect="the engines read pictures of other sizes",
    kind="bug",
    cause="image_expansion",
    advice="Compare the sizes that both engines resize screenshots to: their rounding,"
    " and the limits of their processors.",
)
LENGTHS = _RETOKENISED(
    "both engines' responses have one length", "rollout_ids", _lengths
)
IDS = _RETOKENISED(
    "both engines have the same token ids",
    "rollout_ids",
    partial(_ids, as_text=False),
    refutes="retokenised",
)
IDS_AS_TEXT = replace(IDS, find=partial(_ids, as_text=True))


# What is decoded to see whether a tokenizer fits: rounds, and tokens of each. Encoding
# can take the square of a length: no text of so many characters is encoded again.
_ROUNDS, _TOKENS, _CHARACTERS = 64, 1000, 1_000_000
# A model writes nearly all tokens as its tokenizer would. Of the text that another
# model's tokenizer makes of them, 73 to 93 % come back (measured on two BPE
# tokenizers, and on one with its ids shuffled).
_SAME, _ENOUGH = 0.95, 100


def _wrong_tokenizer(batch: Batch) -> Fault | None:
    stored = batch.require_ids()
    require_tokens(batch)
    if batch.tokenizer is None:
        raise UntestableError(field="tokenizer")
    rounds = batch.rounds
    starts = rounds.start[:_ROUNDS].tolist()
    sizes = rounds.num_tokens[:_ROUNDS].clamp(max=_TOKENS).tolist()
    spans = zip(starts, sizes, strict=True)
    ids = [stored[a : a + n].tolist() for a, n in spans]
    flat = list(chain.from_iterable(ids))
    texts = decode_ids(flat, batch.tokenizer)
    unknown = [
        token for token, text in zip(flat, texts, strict=True) if text == f"⟨{token}⟩"
    ]
    if unknown:
        return Fault(
            f"it does not know {len(unknown):,} of {pluralize(len(flat), 'token')},"
            f" such as {unknown[0]}: it is not the tokenizer of this model"
        )
    if sum(map(len, texts)) > _CHARACTERS:
        why = f"the text of {pluralize(len(flat), 'token')} is too long to encode again"
        raise UntestableError(field="tokenizer", why=why)
    same = _share_encoded_again(batch.tokenizer, ids)
    if len(flat) < _ENOUGH or same >= _SAME:
        return None
    return Fault(
        f"its text of {pluralize(len(flat), 'token')}, encoded again, has"
        f" {percent(same)} of the same ids, where a model's own text has nearly all: it"
        " may be the tokenizer of another model"
    )


def _share_encoded_again(tokenizer: object, rows: Sequence[list[int]]) -> float:
    """Return the share of ids that come back if text is encoded again; 1 if unknown."""
    inner = resolve_tokenizer(tokenizer)
    if not hasattr(inner, "encode") or not hasattr(inner, "decode"):
        return 1.0
    num_same = 0
    for row in rows:
        try:
            text = inner.decode(row, skip_special_tokens=False)
            again = inner.encode(text, add_special_tokens=False)
        except Exception as error:  # any callable can be a tokenizer
            raise tokenizer_error(error) from error
        same = Counter(row) & Counter(getattr(again, "ids", again))
        num_same += same.total()
    return num_same / max(sum(map(len, rows)), 1)


TOKENIZER = Contract(
    "the tokenizer is the model's",
    "tokenizer",
    _wrong_tokenizer,
    effect="the text shown may be wrong, and the numbers are not affected",
)


def mask_runs(batch: Batch) -> Rounds:
    """Return the runs of the mask, which `round_ids` may split into several rounds."""
    if batch.round_ids is None:
        return batch.rounds
    return find_rounds(batch.response_mask, batch.offsets)


def prompt_lengths(batch: Batch) -> list[int]:
    """Return the length of each prompt."""
    if batch.prompt_offsets is None:
        raise UntestableError(field="prompt_ids")
    return batch.prompt_offsets.diff().tolist()


def sequence(batch: Batch, sample: int) -> Array:
    """Return the token ids of a sample's prompt and response."""
    if batch.prompt_ids is None:
        raise UntestableError(field="prompt_ids")
    return known_sequence(batch, sample)[1]


# A response may begin with a single-token prompt by chance.
_MIN_PROMPT = 2


def _begins_with_prompt(batch: Batch) -> Fault | None:
    batch.require_ids()
    lengths = prompt_lengths(batch)
    long = [sample for sample, size in enumerate(lengths) if size >= _MIN_PROMPT]
    if not long:
        why = f"no prompt has {_MIN_PROMPT} tokens"
        raise UntestableError(field="prompt_ids", why=why)
    rows = [sample for sample in long if _is_repeated(batch, sample, lengths[sample])]
    if len(rows) <= len(long) / 2:
        return None
    return fault_in(rows, f"of {len(long):,} whose response begins with its prompt")


def _is_repeated(batch: Batch, sample: int, size: int) -> bool:
    if batch.prompt_ids is None or batch.prompt_offsets is None:
        return False
    if size > int(batch.lengths[sample]):
        return False
    first, begin = int(batch.prompt_offsets[sample]), int(batch.offsets[sample])
    prompt = batch.prompt_ids[first : first + size]
    return torch.equal(prompt, batch.require_ids()[begin : begin + size])


NOT_REPEATED = Contract(
    "responses do not begin with their prompt",
    "prompt_ids",
    _begins_with_prompt,
    effect="the prompt is scored as part of the response",
    kind="bug",
    cause="prompt_mismatch",
    advice="Cut the prompt from the response before it is scored.",
)
