"""Train a small random model with ms-swift and its recipe; a real vLLM samples.

    python tests/interop/vllm_swift.py FOLDER

in an environment with vLLM and ms-swift, on a CPU, with the checkout on PYTHONPATH. All
is ms-swift's own (`--use_vllm true --vllm_mode colocate`), with the recipe's lines in
`_prepare_batch_inputs`, except how new weights reach vLLM: `_load_state_dict_to_vllm`
calls the model's `load_weights`, which vLLM on a CPU does not allow once it has packed
its weights (`dispatch_cpu_unquantized_gemm`). They go through `reload_weights` here, as
ms-swift does it on an NPU.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from paste import paste  # type: ignore[import-not-found]  # others have `tests`
from readme import RECIPES, blocks  # type: ignore[import-not-found]
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

import rounddiag as rd

TOKENIZER = Path(__file__).parents[2] / "sample_data" / "tokenizer.json"
PAD, EOS = "<|endoftext|>", "<|im_end|>"
MOST = 1e-5  # nat: ms-swift has vLLM in the dtype of training, float32
STEPS = 6
OPTIONS = {
    "rlhf_type": "grpo",
    "model_type": "qwen2",
    "template": "qwen",
    "system": "",
    "reward_funcs": "length",
    "tuner_type": "full",
    "torch_dtype": "float32",
    "use_vllm": "true",
    "vllm_mode": "colocate",
    "vllm_gpu_memory_utilization": "0.2",
    "vllm_max_model_len": "128",
    "vllm_enforce_eager": "true",
    "rollout_importance_sampling_mode": "token_truncate",
    "num_generations": "4",
    "per_device_train_batch_size": "8",
    "steps_per_generation": "1",
    "num_iterations": "2",
    "gradient_accumulation_steps": "1",
    "max_completion_length": "12",
    "max_steps": str(STEPS),
    "learning_rate": "1e-3",
    "use_cpu": "true",
    "bf16": "false",
    "gradient_checkpointing": "false",
    "save_strategy": "no",
    "report_to": "none",
    "split_dataset_ratio": "0",
    "dataset_num_proc": "1",
    "dataloader_num_workers": "0",
    "load_from_cache_file": "false",
}


def save_model(folder: Path) -> None:
    """Write a random model that vLLM can load, with its tokenizer."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    vocabulary = -(-tokenizer.get_vocab_size() // 8) * 8
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    size = {"vocab_size": vocabulary, "max_position_embeddings": 256}
    config = Qwen2Config(**size, **sizes, **heads)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS
    ).save_pretrained(folder)


def save_prompts(path: Path) -> None:
    """Write the data set."""
    with path.open("w") as out:
        for text in ["click City", "scroll down"] * 8:
            row = {"messages": [{"role": "user", "content": text}]}
            out.write(json.dumps(row) + "\n")


def hand_over(self: Any) -> None:
    """Give vLLM the trainer's weights."""
    weights = self._collect_state_dict_for_vllm()  # its own
    worker = self.engine.inner_model_executor.driver_worker.worker
    worker.model_runner.reload_weights(weights_iterator=iter(weights.items()))


def train(folder: Path) -> None:
    """Train with the recipe's lines."""
    from swift import rlhf_main
    from swift.rewards import ORM, orms
    from swift.rlhf_trainers.grpo_trainer import GRPOTrainer

    class Length(ORM):  # type: ignore[misc]
        def __call__(self, completions: list[str], **_: object) -> list[float]:
            return [float(len(one)) for one in completions]

    orms["length"] = Length
    code = blocks(RECIPES, "ms-swift")[0].replace("/data/diag", str(folder))
    GRPOTrainer._prepare_batch_inputs = paste(  # where the recipe says
        GRPOTrainer._prepare_batch_inputs,
        "grpo_batch.old_per_token_logps = (",
        code.replace("% 10", "% 1"),
    )
    GRPOTrainer._move_full_model_to_vllm = hand_over
    save_prompts(folder / "prompts.jsonl")
    paths = {
        "model": folder / "model",
        "dataset": folder / "prompts.jsonl",
        "output_dir": folder / "out",
    }
    options = {**OPTIONS, **{name: str(path) for name, path in paths.items()}}
    rlhf_main(
        [part for name, value in options.items() for part in (f"--{name}", value)]
    )


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    torch.set_num_threads(1)
    save_model(folder / "model")
    train(folder)
    paths = sorted(folder.glob("*.pt"))
    assert len(paths) == STEPS // 2, paths
    for path in paths:
        batch = rd.load(path)
        size = rd.token_frame(batch)["diff"].abs()
        print(f"{path.name}: {batch!r}, mean |diff| {size.mean():.1e} nat")
        assert size.mean() < MOST


if __name__ == "__main__":
    main()
