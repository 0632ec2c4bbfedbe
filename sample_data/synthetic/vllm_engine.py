"""The sampling engine: vLLM, in this process and on a CPU."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vllm
from PIL import Image
from torch import nn

from .chat import IM_END, IMAGE, NEVER_SAMPLED

MAX_NEW_TOKENS = 48
SAMPLING = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "max_tokens": MAX_NEW_TOKENS,
    "logprobs_mode": "processed_logprobs",
}
CONTEXT = 1024
NEVER = dict.fromkeys(NEVER_SAMPLED, -100.0)  # they would break the next prompt
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


@dataclass(frozen=True)
class Written:
    """What the engine wrote in one round, and with which log-probs."""

    ids: list[int]
    log_probs: list[float]


class Engine:
    """vLLM with the agent of a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self.llm = vllm.LLM(
            str(folder),
            dtype="bfloat16",
            seed=seed,
            max_model_len=CONTEXT,
            enforce_eager=True,
            gpu_memory_utilization=0.2,  # of the machine's memory
            logprobs_mode=SAMPLING["logprobs_mode"],
            limit_mm_per_prompt={"image": 8, "video": 0},
        )
        self.how = vllm.SamplingParams(
            temperature=SAMPLING["temperature"],
            top_p=SAMPLING["top_p"],
            top_k=SAMPLING["top_k"],
            max_tokens=MAX_NEW_TOKENS,
            logprobs=0,  # those of the sampled token
            stop_token_ids=[IM_END],
            logit_bias=NEVER,
            detokenize=False,
        )

    def load(self, folder: Path) -> None:
        """Take the weights of another folder, and forget all that the old ones made."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        self.llm.apply_model(pack_head)
        self.llm.reset_mm_cache()
        self.llm.llm_engine.engine_core.reset_encoder_cache()
        if not self.llm.reset_prefix_cache():
            message = "expected an idle engine, whose prefix cache can be reset"
            raise RuntimeError(message)

    def write(
        self, conversations: Sequence[tuple[list[int], list[Image.Image]]]
    ) -> list[Written]:
        """Continue all conversations by one round; pictures are in their order."""
        requests = [
            {
                "prompt_token_ids": one_pad_a_picture(ids),
                "multi_modal_data": {"image": pictures},
            }
            for ids, pictures in conversations
        ]
        answers = self.llm.generate(requests, self.how, use_tqdm=False)
        found = []
        for answer, (ids, _) in zip(answers, conversations, strict=True):
            if list(answer.prompt_token_ids) != ids:
                message = f"expected to read {ids}, found {answer.prompt_token_ids}"
                raise RuntimeError(message)
            (output,) = answer.outputs
            written = list(output.token_ids)
            log_probs = [
                values[token].logprob
                for token, values in zip(written, output.logprobs, strict=True)
            ]
            found.append(Written(written, log_probs))
        return found

    def facts(self) -> dict[str, Any]:
        """Return the facts of a run that a `Recorder` writes."""
        config = self.llm.llm_engine.vllm_config
        return {
            "rollout_engine": "vllm",
            "rollout_engine_version": vllm.__version__,
            "rollout_dtype": "bfloat16",
            "enforce_eager": True,
            "prefix_caching": config.cache_config.enable_prefix_caching,
            "chunked_prefill": config.scheduler_config.enable_chunked_prefill,
            "tokens_never_sampled": list(NEVER_SAMPLED),
            "sampling": SAMPLING,
        }


def pack_head(model: nn.Module) -> None:
    """Pack the weights of a tied head again.

    On a CPU with AMX, vLLM 0.32.0 multiplies with a packed copy of them. It stays as it
    was in `reload_weights`, which packs only layers that the checkpoint has.
    """
    (head,) = [one for name, one in model.named_modules() if name.endswith("lm_head")]
    head.quant_method.process_weights_after_loading(head)


def one_pad_a_picture(ids: Sequence[int]) -> list[int]:
    """Return the ids that vLLM asks for: it repeats the pad of a picture itself."""
    before = [None, *ids]
    return [
        one
        for one, last in zip(ids, before, strict=False)
        if one != IMAGE or last != IMAGE
    ]
