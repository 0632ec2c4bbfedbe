"""Run OpenRLHF's rollout and experience code on what a real vLLM samples, on a CPU.

    python tests/interop/vllm_openrlhf.py FOLDER

in an environment with vLLM and OpenRLHF, with the checkout on PYTHONPATH. As
`openrlhf_files.py`, with vLLM in the place of its engine. Stand-ins are left for the
placement: OpenRLHF's `RolloutRayActor` asks Ray for a share of a GPU
(`create_vllm_engines`, `num_gpus`), and for `flash_attn`, which is only imported.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
import torch
import vllm
from openrlhf_files import (  # type: ignore[import-not-found]  # others have `tests`
    STEP,
    Group,
    StandIns,
    Tokenizer,
    experiences_of,
    sampled,
    trainer,
)
from readme import RECIPES, blocks  # type: ignore[import-not-found]
from transformers import Qwen2Config, Qwen2ForCausalLM

import rounddiag as rd

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

MOST = 0.05  # nat: bfloat16 against float32, of a random model


class OnlyFlashAttention(StandIns):  # type: ignore[misc]
    """Leaves vLLM as it is."""

    def find_spec(self, name: str, *others: object) -> ModuleSpec | None:
        """Find `flash_attn` alone."""
        if name.partition(".")[0] != "flash_attn":
            return None
        found: ModuleSpec | None = super().find_spec(name, *others)
        return found


class Engine:
    """vLLM, asked as OpenRLHF's agents ask its actor."""

    def __init__(self, folder: Path) -> None:
        self.calls = 0
        # vLLM leaves it to oneDNN, which so small a model does without.
        torch.cpu._init_amx()  # ask Linux for the processor's AMX
        self.llm = vllm.LLM(
            str(folder),
            dtype="bfloat16",
            max_model_len=128,
            enforce_eager=True,
            gpu_memory_utilization=0.2,
            logprobs_mode="processed_logprobs",
            skip_tokenizer_init=True,
        )

    async def generate(self, tokens: list[int], *_: Any, **__: Any) -> Any:
        """Write a few tokens."""
        self.calls += 1
        params = vllm.SamplingParams(
            temperature=1.0,
            max_tokens=2 + self.calls % 3,
            logprobs=1,
            ignore_eos=True,
            detokenize=False,
        )
        prompt = {"prompt_token_ids": list(tokens)}
        (answer,) = self.llm.generate(prompt, params, use_tqdm=False)
        return answer


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    sys.meta_path.append(OnlyFlashAttention())
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = Qwen2Config(vocab_size=64, **sizes, **heads, max_position_embeddings=128)
    model = Qwen2ForCausalLM(config).eval()
    model.save_pretrained(folder / "model")
    engine = Engine(folder / "model")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    from openrlhf.models import Actor

    actor, tokenizer = Actor(model), Tokenizer()
    actor.packing_samples = False  # set only where it loads the model itself
    self = trainer(tokenizer, Group(actor))
    experiences = experiences_of(sampled(engine), tokenizer, self)
    code = blocks(RECIPES, "openrlhf")[0].replace("/data/diag", str(folder))
    known = {"experiences": experiences, "global_step": STEP, "torch": torch}
    exec(compile(code, "recipes.md", "exec"), {"self": self, **known})  # noqa: S102 our own page
    ray.shutdown()
    (path,) = folder.glob("*.pt")
    batch = rd.load(path)
    size = rd.token_frame(batch)["diff"].abs()
    print(f"{path.name}: {batch!r}, mean |diff| {size.mean():.4f} nat")
    assert 0 < size.mean() < MOST


if __name__ == "__main__":
    main()
