"""Earlier rounds that a chat template writes again: a tiny model with a template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import rounddiag as rd
from rounddiag.errors import BatchError
from rounddiag.proof import template as template_module
from rounddiag.proof.chat import Chat
from tests.proof import test_local
from tests.proof.test_adapters import load
from tests.proof.test_local import SIZE, log_probs
from tests.proof.test_prove import say

folder = test_local.folder  # the same fixture
WORDS = ["<s>", "<end>", "<think>", "</think>", "\n", " ", "ab", "a", "b"]
START, END, THINK, DONE, LINE, SPACE, AB, A, B = range(9)
# Thoughts and outer spaces of earlier answers go, as in the template of Qwen3.
TEMPLATE = """\
{%- for one in messages -%}
{{ '<s>' }}
{%- if one.role == 'assistant' and not loop.last -%}
{{ one.content.split('</think>')[-1].strip() }}
{%- else -%}
{{ one.content }}
{%- endif -%}
{{ '<end>\n' }}
{%- endfor -%}"""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    words = {word: index for index, word in enumerate(WORDS)}
    words |= {chr(0x4E00 + index): index for index in range(len(WORDS), SIZE)}
    backend = Tokenizer(models.BPE(vocab=words, merges=[("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    backend.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        additional_special_tokens=["<s>", "<end>", "<think>", "</think>"],
    )
    fast.chat_template = TEMPLATE
    return fast


def test_a_round_is_rendered_as_history(tokenizer: Any) -> None:
    chat = Chat(tokenizer)
    assert chat.render([THINK, A, DONE, LINE, AB, SPACE, END]) == [AB, END]
    assert chat.render([A, B, END]) == [AB, END]
    assert chat.retokenise([A, B, END]) == [AB, END]


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].content }}",
        "{{ raise_exception('no') }}",
        "{% for",
        "{% include '/etc/passwd' %}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ 'a' * 10 ** 10 }}",
        "{% for a in range(99999) %}{{ 'b' * 999 }}{% endfor %}",  # 100 MB
    ],
)
def test_a_template_that_gives_no_history(
    tokenizer: Any, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "chat_template", template)
    assert Chat(tokenizer).render([AB, END]) is None


def test_a_template_that_does_not_end_is_left_out(
    folder: str, tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_module, "_SECONDS", 0.5)
    loop = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
    monkeypatch.setattr(tokenizer, "chat_template", loop + TEMPLATE)
    chat = Chat(tokenizer)
    for _ in range(2):  # the second time without another half a second
        with pytest.raises(BatchError, match="expected one that ends within"):
            chat.render([AB, END])
    child = chat._template._child
    assert child.poll() is not None
    load(folder).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    row = [A, B, A, B, END, LINE, START, A, B]
    batch = rd.Batch.from_rows(
        response_ids=[torch.tensor(row)] * 2,
        response_mask=[torch.tensor([1] * 5 + [0] * 2 + [1] * 2)] * 2,
        rollout_log_probs=[torch.full((9,), -1.0)] * 2,
        old_log_probs=[torch.full((9,), -1.5)] * 2,
        prompt_ids=[torch.tensor([A, B])] * 2,
        tokenizer=tokenizer,
    )
    with pytest.raises(BatchError, match="`chat_template`: expected one that ends"):
        rd.rescore(batch, str(tmp_path), "history_rendered")
    rescored = rd.rescore(batch, str(tmp_path), "history_retokenised")
    assert "history_retokenised" in rescored.scores


@pytest.mark.parametrize(
    ("name", "first", "history"),
    [
        ("history_rendered", [THINK, 20, 21, DONE, LINE], [22, 23]),
        ("history_retokenised", [A, B, A, B, A, B], [AB, AB, AB, 22, 23]),
        ("thoughts_removed", [THINK, 20, 21, DONE], [LINE, 22, 23]),
    ],
)
def test_history_that_is_written_again_is_proved(
    folder: str,
    tmp_path: Path,
    tokenizer: Any,
    name: str,
    first: list[int],
    history: list[int],
) -> None:
    """The second round follows on what the template leaves of the first."""
    net = load(folder)
    net.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    generator = torch.Generator().manual_seed(0)
    middle = [] if name != "thoughts_removed" else [LINE]
    rows, rollouts, olds = [], [], []
    for _ in range(8):
        draw = torch.randint(24, SIZE, (60,), generator=generator).tolist()
        prompt, shown, second = draw[:6], [LINE, START, *draw[6:10]], draw[10:]
        written = [*first, *middle, 22, 23, END]
        row = torch.tensor([*prompt, *written, *shown, *second])
        other = torch.tensor([*prompt, *history, END, *shown, *second])
        truth = log_probs(net, row)
        again = log_probs(net, other)[-len(second) :]
        rows.append(row)
        olds.append(truth[6:])
        rollouts.append(torch.cat([truth[6 : -len(second)], again]))
    mask = [1] * len(written) + [0] * len(shown) + [1] * len(second)
    batch = rd.Batch.from_rows(
        response_ids=[row[6:] for row in rows],
        response_mask=[torch.tensor(mask)] * 8,
        old_log_probs=olds,
        rollout_log_probs=rollouts,
        prompt_ids=[row[:6] for row in rows],
        tokenizer=tokenizer,
    )
    proof = rd.prove(batch, str(tmp_path), hypotheses=["retokenised"])
    assert say(proof) == ("proved", "rollout", "retokenised")
    rescored = rd.rescore(batch, str(tmp_path), name).scores[name]
    at = batch.response_mask != 0
    assert float((rescored - batch.log_probs("rollout"))[at].abs().max()) < 1e-4
