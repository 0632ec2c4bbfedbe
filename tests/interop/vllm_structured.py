"""Let vLLM answer with structured output, and look at what is said of the log-probs.

    python tests/interop/vllm_structured.py

in an environment with vLLM, with the checkout on PYTHONPATH. vLLM answers with
`sample_data/model` in bfloat16, with a choice list, a regex, a JSON schema or an EBNF
grammar, and without; transformers scores the ids in float32. Structured output must be
possible in each batch that has it, or has it in every second row, and in no other; a
record must name it, and a choice list must be proved. Logits must be called so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

import rounddiag as rd
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.vision import EncodedScreenshot
from sample_data.synthetic.app import App
from sample_data.synthetic.chat import IM_END, SCREENSHOT
from sample_data.synthetic.rollout import shot
from sample_data.synthetic.train import APPS
from sample_data.synthetic.vllm_engine import NEVER, Engine

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
MODEL = SAMPLE_DATA / "model"
ROWS, MAX_TOKENS = 48, 40
STRUCTURED_OUTPUT = "structured_output"
NUMBER = {"type": "integer", "minimum": 0, "maximum": 111}
ACTION = {
    "type": "object",
    "properties": {
        "tool": {"enum": ["click", "type", "scroll"]},
        "x": NUMBER,
        "y": NUMBER,
    },
    "required": ["tool", "x", "y"],
    "additionalProperties": False,
}
# Some begin with others; some have long beginnings in common.
CHOICES = ["scroll", "scroll(up)", "scroll(down)", "click(12, 30)", "click(12, 31)"]
MANY = [f"click({x}, {y})" for x in range(0, 112, 7) for y in range(0, 84, 7)]
GRAMMAR = r"""
root ::= "<think>" [a-zA-Z' ]+ ".</think> " action
action ::= "click(" number ", " number ")" | "scroll(" ("up" | "down") ")"
number ::= [0-9] | [1-9] [0-9]
"""
STRUCTURED: dict[str, dict[str, Any]] = {
    "two": {"choice": ["yes", "no"]},
    "choice": {"choice": CHOICES},
    "many": {"choice": MANY},
    "regex": {"regex": r"(click|scroll)\([0-9]{1,2}(, [0-9]{1,2})?\)"},
    "schema": {"json": ACTION},
    "grammar": {"grammar": GRAMMAR},
}
PLAIN: dict[str, dict[str, Any]] = {
    "sound": {},
    "top_p": {"top_p": 0.9},
    "top_k": {"top_k": 5},
}


Settings = Mapping[str, Any]


@dataclass
class Answer:
    """What one sample has read and written."""

    app: App
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    pictures: list[Any] = field(default_factory=list)
    shots: list[EncodedScreenshot] = field(default_factory=list)

    def read(self, tokenizer: Tokenizer, *, sees: bool) -> None:
        """Add the task, or what follows an answer, with a picture or without."""
        begin, task = ("\n", "") if self.ids else ("", self.app.task)
        screen = SCREENSHOT if sees else ""
        text = f"{begin}<|im_start|>user\n{screen}{task}<|im_end|>\n"
        self.add(tokenizer.encode(f"{text}<|im_start|>assistant\n").ids)
        if sees:
            picture, data = shot(self.app)
            self.shots.append(EncodedScreenshot(data=data, round=len(self.pictures)))
            self.pictures.append(picture)

    def add(self, ids: list[int], log_probs: Sequence[float] = ()) -> None:
        """Add ids; those with log-probs were written."""
        self.ids += ids
        self.mask += [int(bool(log_probs))] * len(ids)
        self.log_probs += log_probs or [0.0] * len(ids)


class Session:
    """vLLM, and what it is asked."""

    def __init__(self) -> None:
        self.engine = Engine(MODEL, 0)
        self.tokenizer = Tokenizer.from_file(str(SAMPLE_DATA / "tokenizer.json"))
        core: Any = self.engine.llm.llm_engine.engine_core
        worker = core.engine_core.model_executor.driver_worker.worker
        self.sampler = worker.model_runner.sampler

    def write(
        self, settings: Sequence[Settings], mode: str, *, sees: bool, rounds: int = 2
    ) -> rd.Batch:
        """Let vLLM write some rounds, a sample for each of some settings."""
        for part in (self.sampler, self.sampler.topk_topp_sampler):
            part.logprobs_mode = mode
        self.engine.how = [*map(parameters, settings)]
        rows = [Answer(APPS[i % 3](np.random.default_rng(i))) for i in range(ROWS)]
        for _ in range(rounds):
            for row in rows:
                row.read(self.tokenizer, sees=sees)
            written = self.engine.write([(row.ids, row.pictures) for row in rows])
            for row, answer in zip(rows, written, strict=True):
                row.add(answer.ids, answer.log_probs)
        starts = [row.mask.index(1) for row in rows]

        def cut(name: str) -> list[torch.Tensor]:
            values = [getattr(row, name) for row in rows]
            return [torch.tensor(v[at:]) for v, at in zip(values, starts, strict=True)]

        return rd.Batch.from_rows(
            prompt_ids=[
                torch.tensor(row.ids[:at]) for row, at in zip(rows, starts, strict=True)
            ],
            response_ids=cut("ids"),
            response_mask=cut("mask"),
            rollout_log_probs=cut("log_probs"),
            images=[tuple(row.shots) for row in rows] if sees else None,
        )


def parameters(settings: Settings) -> SamplingParams:
    """Return the parameters of a request."""
    names = ("choice", "regex", "json", "grammar")
    grammar = {name: value for name, value in settings.items() if name in names}
    others = {name: value for name, value in settings.items() if name not in names}
    return SamplingParams(
        temperature=1.0,
        max_tokens=MAX_TOKENS,
        logprobs=0,
        stop_token_ids=[IM_END],
        logit_bias=NEVER,
        detokenize=False,
        structured_outputs=StructuredOutputsParams(**grammar) if grammar else None,
        **others,
    )


def with_record(batch: rd.Batch, settings: Settings) -> rd.Batch:
    """Return a batch that records its requests, and forgets who scored it again."""
    return replace(batch, meta={"sampling": {"structured_outputs": settings}})


def causes_of(batch: rd.Batch) -> tuple[list[str], set[str], str]:
    """Return the causes that are named, those that are possible, and the verdict."""
    findings = rd.diagnose(batch)
    shown = [f.cause for f in findings if f.cause != "unknown"]
    possible = {str(row) for finding in findings for row in finding.candidates}
    return shown, possible, findings.verdict


def exchange(batch: rd.Batch) -> rd.Batch:
    """Return a batch whose training engine is the one with the grammar."""
    old, rollout = batch.both_log_probs()
    return replace(batch, old_log_probs=rollout, rollout_log_probs=old)


def main() -> None:
    session, model = Session(), LocalEngine.open(str(MODEL), dtype="float32")
    kinds = {name: [settings] * ROWS for name, settings in (STRUCTURED | PLAIN).items()}
    half = {f"half {n}": [{}, s] * (ROWS // 2) for n, s in STRUCTURED.items()}
    for name, settings in (kinds | half).items():
        for mode in ("raw_logprobs", "processed_logprobs"):
            for sees in (False, True):
                batch = rd.rescore(session.write(settings, mode, sees=sees), model)
                diff = rd.token_frame(batch)["diff"]
                shown, possible, verdict = causes_of(batch)
                line = f"{name}, {mode}, {'pictures' if sees else 'text'}: {verdict}"
                print(f"{line}, mean |diff| {diff.abs().mean():.3g}, named {shown}")
                assert STRUCTURED_OUTPUT not in shown
                is_structured = name not in PLAIN
                assert (STRUCTURED_OUTPUT in possible) == is_structured, possible
                if not is_structured:
                    continue
                recorded = with_record(batch, settings[-1])
                assert causes_of(recorded)[0][0] == STRUCTURED_OUTPUT
                if "choice" in settings[-1]:
                    for each in (recorded, exchange(recorded)):
                        proof = rd.prove(each, model, hypotheses=["sampling"])
                        assert proof.causes == (STRUCTURED_OUTPUT,), proof
    for mode in ("raw_logits", "processed_logits"):
        batch = rd.rescore(session.write(kinds["sound"], mode, sees=True), model)
        assert "logits (vLLM saves them" in str(rd.diagnose(batch))


if __name__ == "__main__":
    main()
