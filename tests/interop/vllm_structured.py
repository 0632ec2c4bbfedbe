"""Let vLLM answer with structured output, and look at what is said of the log-probs.

    python tests/interop/vllm_structured.py

in an environment with vLLM, with the checkout on PYTHONPATH. vLLM answers with
`sample_data/model` in bfloat16, with a choice list, a regex, a JSON schema or an EBNF
grammar, and without; transformers scores the ids in float32. Structured output must be
possible in each batch that has it and in no other, and a record must name it; a choice
list must be proved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

import rounddiag as rd
from rounddiag.vision import EncodedScreenshot
from sample_data.synthetic.chat import IM_END, SCREENSHOT
from sample_data.synthetic.rollout import shot
from sample_data.synthetic.train import APPS
from sample_data.synthetic.vllm_engine import NEVER, Engine

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
MODEL = SAMPLE_DATA / "model"
ROWS, MAX_TOKENS = 48, 40
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


class Session:
    """vLLM, and what it is asked."""

    def __init__(self) -> None:
        self.engine = Engine(MODEL, 0)
        self.tokenizer = Tokenizer.from_file(str(SAMPLE_DATA / "tokenizer.json"))
        core: Any = self.engine.llm.llm_engine.engine_core
        worker = core.engine_core.model_executor.driver_worker.worker
        self.sampler = worker.model_runner.sampler

    def set_mode(self, mode: str) -> None:
        """Choose which values vLLM returns."""
        for part in (self.sampler, self.sampler.topk_topp_sampler):
            part.logprobs_mode = mode

    def write(
        self, settings: Sequence[Mapping[str, Any]], *, sees: bool, rounds: int = 1
    ) -> rd.Batch:
        """Let vLLM write rounds, a sample for each of some settings."""
        how = [self.parameters(dict(values)) for values in settings]
        names = ("prompt", "ids", "mask", "log_probs", "images")
        rows: list[dict[str, list[Any]]] = [{name: [] for name in names} for _ in how]
        shots: list[list[Any]] = [[] for _ in how]
        apps = [APPS[i % 3](np.random.default_rng(i)) for i in range(len(how))]
        for number in range(rounds):
            for row, own, app in zip(rows, shots, apps, strict=True):
                screen = SCREENSHOT if sees else ""
                before = "" if not number else "\n"
                task = "" if number else app.task
                text = f"{before}<|im_start|>user\n{screen}{task}<|im_end|>\n"
                ids = self.tokenizer.encode(f"{text}<|im_start|>assistant\n").ids
                row["ids"] += ids
                row["mask"] += [0] * len(ids)
                row["log_probs"] += [0.0] * len(ids)
                row["prompt"] = row["prompt"] or ids
                if sees:
                    picture, data = shot(app)
                    own.append(picture)
                    row["images"].append(EncodedScreenshot(data=data, round=number))
            self.engine.how = how
            given = [(row["ids"], own) for row, own in zip(rows, shots, strict=True)]
            for row, answer in zip(rows, self.engine.write(given), strict=True):
                row["ids"] += answer.ids
                row["mask"] += [1] * len(answer.ids)
                row["log_probs"] += answer.log_probs
        starts = [len(row["prompt"]) for row in rows]

        def of(name: str) -> list[torch.Tensor]:
            return [
                torch.tensor(row[name][at:])
                for row, at in zip(rows, starts, strict=True)
            ]

        return rd.Batch.from_rows(
            prompt_ids=[torch.tensor(row["prompt"]) for row in rows],
            response_ids=of("ids"),
            response_mask=of("mask"),
            rollout_log_probs=of("log_probs"),
            images=[tuple(row["images"]) for row in rows] if sees else None,
        )

    def parameters(self, values: dict[str, Any]) -> SamplingParams:
        """Return the parameters of one request."""
        names = ("choice", "regex", "json", "grammar")
        structured = {name: values.pop(name) for name in names if name in values}
        return SamplingParams(
            **{"temperature": 1.0, **values},
            max_tokens=MAX_TOKENS,
            logprobs=0,
            stop_token_ids=[IM_END],
            logit_bias=NEVER,
            detokenize=False,
            structured_outputs=StructuredOutputsParams(**structured)
            if structured
            else None,
        )
