"""Train a small random model with TRL and the recipe, with a real vLLM in its process.

    python tests/interop/vllm_trl.py FOLDER

in an environment with vLLM and TRL, on a CPU, with the checkout on PYTHONPATH. All is
TRL's own (`use_vllm=True`, `vllm_mode="colocate"`): vLLM samples in bfloat16, TRL hands
it the weights after every step and computes `old_per_token_logps`. Only how the weights
reach vLLM is not: `sync_weights` calls the model's `load_weights`, which vLLM on a CPU
does not allow once it has packed its weights (`dispatch_cpu_unquantized_gemm`).
`trl_files.py` has the multi-round case, with a `rollout_func` in the place of vLLM.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from readme import RECIPES, blocks  # type: ignore[import-not-found]
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

import rounddiag as rd

PAD, EOS = "<pad>", "<eos>"
MOST = 0.05  # nat: bfloat16 against float32, of a random model
STEPS = 4


def save_model(folder: Path) -> None:
    """Write a random model that vLLM can load, with its tokenizer."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = Qwen2Config(vocab_size=64, **sizes, **heads, max_position_embeddings=128)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    words = {word: i for i, word in enumerate([PAD, EOS, *map(str, range(62))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS
    ).save_pretrained(folder)


def hand_over(self: Any) -> None:
    """Give vLLM the trainer's weights."""
    runner = self.llm.llm_engine.model_executor.driver_worker.model_runner
    runner.reload_weights(weights_iterator=self._iter_named_params())  # TRL's own
    self.llm.reset_prefix_cache()


def train(folder: Path) -> None:
    """Train with the recipe's class."""
    from trl import GRPOConfig  # type: ignore[import-not-found]
    from trl.generation.vllm_generation import (  # type: ignore[import-not-found]
        VLLMGeneration,
    )

    VLLMGeneration.sync_weights = hand_over
    names: dict[str, Any] = {}
    code = blocks(RECIPES, "trl")[0].replace("/data/diag", str(folder))
    exec(compile(code.replace("% 10", "% 1"), "recipes.md", "exec"), names)  # noqa: S102 our own page
    names["SavingTrainer"](
        model=str(folder / "model"),
        args=GRPOConfig(
            output_dir=str(folder / "out"),
            per_device_train_batch_size=8,
            num_generations=4,
            steps_per_generation=1,
            num_iterations=2,  # or TRL does without a pass of its own
            gradient_accumulation_steps=1,
            max_steps=2 * STEPS,
            max_completion_length=12,
            learning_rate=1e-3,
            use_vllm=True,
            vllm_mode="colocate",
            vllm_gpu_memory_utilization=0.2,
            vllm_max_model_length=64,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["1 2", "3 4 5"] * 8}),
        reward_funcs=lambda completions, **_: [float(len(c)) for c in completions],
    ).train()


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    torch.set_num_threads(1)
    save_model(folder / "model")
    train(folder)
    paths = sorted(folder.glob("*.pt"))
    assert len(paths) == STEPS, paths
    for path in paths:
        batch = rd.load(path)
        size = rd.token_frame(batch)["diff"].abs()
        print(f"{path.name}: {batch!r}, mean |diff| {size.mean():.4f} nat")
        assert 0 < size.mean() < MOST


if __name__ == "__main__":
    main()
