"""vLLM as the sampling engine of the bench's episodes.

Runs in an environment with vLLM (`tests/interop/vllm` makes one), on a CPU.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import vllm
from PIL import Image
from safetensors.torch import load_file, save_file
from vllm.lora.request import LoRARequest

from sample_data.synthetic.chat import IM_END
from sample_data.synthetic.vllm_engine import (
    ENVIRONMENT,
    NEVER,
    one_pad_a_picture,
    pack_head,
)
from tests.faults.episodes import MAX_NEW_TOKENS, Episode

CONTEXT = 2048
BLOCK = 32  # tokens of a block of the prefix cache

Request = dict[str, Any]
Edit = Callable[[int, list[int], list[Image.Image]], Request]
"""From the number of an episode, its ids and its pictures to what vLLM reads."""


def request(row: int, ids: list[int], pictures: list[Image.Image]) -> Request:
    """Return the request of a sound engine."""
    del row
    if not pictures:
        return {"prompt_token_ids": ids}
    return {
        "prompt_token_ids": one_pad_a_picture(ids),
        "multi_modal_data": {"image": pictures},
    }


@dataclass(frozen=True)
class How:
    """How vLLM samples: parameters, what it reads, what is done before a round."""

    settings: dict[str, Any] = field(default_factory=dict)
    is_raw: bool = False
    read: Edit = request
    before: Callable[[int], None] = lambda _: None
    adapter: Path | None = None
    is_alone: bool = False
    """Whether requests are served one by one."""


class Sampler:
    """vLLM with an agent's folder."""

    def __init__(self, folder: Path, **options: Any) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        is_text = not (folder / "processor_config.json").exists()
        self.llm = vllm.LLM(
            str(folder),
            dtype=options.pop("dtype", "bfloat16"),
            max_model_len=CONTEXT,
            block_size=BLOCK,
            enforce_eager=True,
            gpu_memory_utilization=0.2,
            logprobs_mode="processed_logprobs",
            skip_tokenizer_init=is_text,
            limit_mm_per_prompt={} if is_text else {"image": 8, "video": 0},
            **options,
        )
        core: Any = self.llm.llm_engine.engine_core
        worker = core.engine_core.model_executor.driver_worker.worker
        self.adapters: dict[Path, int] = {}
        self.sampler = worker.model_runner.sampler

    def load(self, folder: Path, *, is_cache_kept: bool = False) -> None:
        """Take other weights; a sound engine then empties its prefix cache."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        self.llm.apply_model(pack_head)
        self.forget_pictures()
        if not is_cache_kept and not self.llm.reset_prefix_cache():
            message = "expected an idle engine, whose prefix cache can be reset"
            raise RuntimeError(message)

    def adapter(self, folder: Path) -> LoRARequest:
        """Return an adapter under a number of its own: vLLM keeps one by its number."""
        number = self.adapters.setdefault(folder, len(self.adapters) + 1)
        return LoRARequest(folder.name, number, str(folder))

    def forget_pictures(self) -> None:
        """Empty the caches of processed and of encoded pictures.

        They keep count of pictures by themselves, and stop the engine where that is not
        what the model has: after new weights, and after a shortened history.
        """
        self.llm.reset_mm_cache()
        self.llm.llm_engine.engine_core.reset_encoder_cache()

    def sample(self, episodes: Sequence[Episode], how: How) -> None:
        """Let the episodes run to their ends, a round of all of them at a time."""
        for part in (self.sampler, self.sampler.topk_topp_sampler):
            part.logprobs_mode = "raw_logprobs" if how.is_raw else "processed_logprobs"
        values = {"temperature": 1.0, **how.settings}
        settings = vllm.SamplingParams(
            max_tokens=MAX_NEW_TOKENS,
            logprobs=0,
            stop_token_ids=[IM_END],
            logit_bias=NEVER,
            detokenize=False,
            **values,
        )
        adapter = self.adapter(how.adapter) if how.adapter else None
        round_ = 0
        while running := [
            i for i, one in enumerate(episodes) if one.status == "running"
        ]:
            how.before(round_)
            if episodes[0].sees:
                self.forget_pictures()
            requests = [
                how.read(i, list(episodes[i].ids), pictures(episodes[i]))
                for i in running
            ]
            parts = [[one] for one in requests] if how.is_alone else [requests]
            answers = [
                answer
                for part in parts
                for answer in self.llm.generate(
                    part, settings, use_tqdm=False, lora_request=adapter
                )
            ]
            for i, answer in zip(running, answers, strict=True):
                (output,) = answer.outputs
                for token, chances in zip(
                    output.token_ids, output.logprobs, strict=True
                ):
                    episodes[i].write(token, chances[token].logprob)
            round_ += 1


def pictures(one: Episode) -> list[Image.Image]:
    """Return the screenshots that an episode has seen."""
    return [Image.open(io.BytesIO(data)).convert("RGB") for data in one.shots]


def quantize(folder: Path) -> None:
    """Give the language model of a folder weights in int8, with a scale a row."""
    (path,) = folder.glob("*.safetensors")
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight = tensors[name].float()
        scale = weight.abs().amax(1, keepdim=True) / 127
        tensors[name] = (weight / scale).round().to(torch.int8)
        tensors[f"{name}_scale"] = scale
    save_file(tensors, path, {"format": "pt"})
    eight = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**eight, "strategy": "channel", "dynamic": False},
        "input_activations": {**eight, "strategy": "token", "dynamic": True},
    }
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
    (folder / "config.json").write_text(json.dumps(config))
