"""Train a small random model with TRL and the recipe, on a CPU.

Usage, in an environment that has TRL, with the checkout on PYTHONPATH:
`python trl_files.py FOLDER`. A `rollout_func` takes the place of vLLM, which needs a
GPU: it samples two rounds with the model itself and puts two tokens of a tool between.
All else is TRL's own: padding, masks, and the pass that computes
`old_per_token_logps`. A Hugging Face data set is saved beside, from the same numbers.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Image, Sequence
from PIL import Image as Pillow
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rounddiag.loaders import load
from tests.interop.readme import RECIPES, blocks

TOOL = [7, 8]
PAD, EOS = "<pad>", "<eos>"


def small_model() -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    return Qwen2ForCausalLM(config)


def small_tokenizer() -> Any:
    words = {word: i for i, word in enumerate([PAD, EOS, *map(str, range(62))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS
    )


def sampled(model: Any, tokens: list[int], count: int) -> tuple[list[int], list[float]]:
    """Sample some tokens, with their log-probabilities."""
    ids = torch.tensor([tokens])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=True,
        top_k=0,
        eos_token_id=None,
        return_dict_in_generate=True,
        output_logits=True,
    )
    new = out.sequences[0, len(tokens) :].tolist()
    scores = torch.stack(out.logits, dim=1)[0].log_softmax(-1)
    return new, [scores[place, token].item() for place, token in enumerate(new)]


def rollout(prompts: list[str], trainer: Any) -> dict[str, list[list[Any]]]:
    """Sample two rounds for each prompt, and what a tool says between."""
    found: dict[str, list[list[Any]]] = {
        name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask")
    }
    for sample, prompt in enumerate(prompts):
        ids = trainer.processing_class(prompt)["input_ids"]
        first, first_scores = sampled(trainer.model, ids, 3 + sample % 2)
        second, second_scores = sampled(
            trainer.model, [*ids, *first, *TOOL], 2 + sample
        )
        found["prompt_ids"].append(ids)
        found["completion_ids"].append([*first, *TOOL, *second])
        found["logprobs"].append([*first_scores, 0.0, 0.0, *second_scores])
        found["env_mask"].append([*[1] * len(first), 0, 0, *[1] * len(second)])
    return found


def train(folder: Path) -> list[dict[str, list[list[Any]]]]:
    """Train with the recipe's class; return what the rollouts were."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from trl import GRPOConfig  # type: ignore[import-not-found]

    recipe = blocks(RECIPES, "trl")[0]
    names: dict[str, Any] = {}
    code = recipe.replace("/data/diag", str(folder)).replace("% 10", "% 1")
    exec(compile(code, "recipes.md", "exec"), names)  # noqa: S102 our own page
    rollouts: list[dict[str, list[list[Any]]]] = []

    def kept(prompts: list[str], trainer: Any) -> dict[str, list[list[Any]]]:
        rollouts.append(rollout(prompts, trainer))
        return rollouts[-1]

    names["SavingTrainer"](
        model=small_model(),
        args=GRPOConfig(
            output_dir=str(folder / "out"),
            per_device_train_batch_size=4,
            num_generations=2,
            steps_per_generation=1,
            num_iterations=2,  # or TRL does without a pass of its own
            gradient_accumulation_steps=1,
            max_steps=4,
            learning_rate=0.1,
            gradient_checkpointing=False,  # `generate` has no cache with it
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["1 2", "3 4 5"] * 4}),
        processing_class=small_tokenizer(),
        reward_funcs=lambda completions, **_: [float(len(c)) for c in completions],
        rollout_func=kept,
    ).train()
    return rollouts


def check(path: Path, rolled: dict[str, list[list[Any]]], step: int) -> None:
    """Compare what was read with what was sampled."""
    batch = load(path)
    flat = {name: [v for row in rows for v in row] for name, rows in rolled.items()}
    assert batch.prompt_ids is not None
    assert batch.prompt_ids.tolist() == flat["prompt_ids"], path
    assert batch.require_ids().tolist() == flat["completion_ids"], path
    assert batch.response_mask.tolist() == flat["env_mask"], path
    assert torch.equal(batch.log_probs("rollout"), torch.tensor(flat["logprobs"])), path
    written = batch.response_mask == 1
    diff = (batch.log_probs("old") - batch.log_probs("rollout"))[written].abs().max()
    assert 0 < diff < 1e-5, diff  # the same model, in another batch
    assert (batch.num_rounds, batch.step) == (2 * len(batch), step), batch
    assert len(set(batch.group_ids or ())) == 2, batch
    print(f"{path.name}: {batch!r}, step {batch.step}, max |diff| {diff:.1e}")


def save_dataset(rolled: dict[str, list[list[Any]]], folder: Path) -> None:
    """Save the same rows as a Hugging Face data set, in two parts, with pictures."""
    count = len(rolled["prompt_ids"])
    shots = [
        [Pillow.new("RGB", (4, 3), (60 * i, 0, 0))] * (i % 2) for i in range(count)
    ]
    columns = {
        "prompt_ids": rolled["prompt_ids"],
        "response_ids": rolled["completion_ids"],
        "response_mask": rolled["env_mask"],
        "sampler": rolled["logprobs"],
        "trainer": [[score - 0.25 for score in row] for row in rolled["logprobs"]],
        "task": [f"task {i // 2}" for i in range(count)],
        "images": shots,
    }
    dataset = Dataset.from_dict(columns).cast_column("images", Sequence(Image()))
    dataset.save_to_disk(folder, num_shards=2)


def main() -> None:
    made = Path(sys.argv[1])
    made.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as home:
        rollouts = train(Path(home))
        saved = sorted(Path(home).glob("*.pt"))
        for path, rolled in zip(saved, rollouts, strict=True):
            check(path, rolled, int(path.stem.split("_")[1]))
        saved[1].replace(made / f"trl-{version('trl')}_step_2_rank_0.pt")
    save_dataset(rollouts[0], made / f"datasets-{version('datasets')}")


if __name__ == "__main__":
    main()
