"""Runs `rounddiag recipe rescore-transformers` on a real, tiny, random model.

The batch is sampled from the same model token by token; the script of the recipe then
scores it from the exported folder. The attached scores must agree with the sampler up
to rounding. Usage, from the root of the repository:

    python tests/interop/rescore.py

in an environment with transformers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).parents[2]))

import rounddiag as rd
from tests.interop.readme import RECIPES, blocks

SAMPLES, ROUNDS, WRITTEN, SHOWN = 4, 3, 5, 7
VOCABULARY = 200


def tiny_model() -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return Qwen2ForCausalLM(config).eval()


def sampled(model: Any) -> rd.Batch:
    """A batch of rounds that the model wrote, each followed by random tokens."""
    prompts = torch.randint(VOCABULARY, (SAMPLES, 4))
    ids, mask, log_probs = prompts, [], []
    for _ in range(ROUNDS):
        for _ in range(WRITTEN):
            with torch.inference_mode():
                last = model(input_ids=ids).logits[:, -1].float().log_softmax(-1)
            token = torch.multinomial(last.exp(), 1)
            ids = torch.cat([ids, token], 1)
            log_probs.append(last.gather(1, token))
            mask.append(1)
        ids = torch.cat([ids, torch.randint(VOCABULARY, (SAMPLES, SHOWN))], 1)
        log_probs.extend([torch.zeros(SAMPLES, 1)] * SHOWN)
        mask.extend([0] * SHOWN)
    scores = torch.cat(log_probs, 1)
    return rd.Batch.from_padded(
        response_ids=ids[:, prompts.shape[1] :],
        response_mask=torch.tensor([mask] * SAMPLES),
        rollout_log_probs=scores,
        old_log_probs=scores,
        prompt_ids=prompts,
    )


def example(folder: Path) -> str:
    """The recipe's script with the folder, the model and the scores below it."""
    (code,) = blocks(RECIPES, "rescore-transformers")
    for name in ("the/model", "scores.jsonl"):
        code = code.replace(f'"{name}', f'"{folder / Path(name).name}')
    return code.replace('"folder/', f'"{folder}/exported/')


def main() -> None:
    torch.set_num_threads(1)
    model = tiny_model()
    batch = sampled(model)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model.save_pretrained(folder / "model")
        rd.export_rescore(batch, folder / "exported")
        exec(example(folder), {})  # noqa: S102 our own recipe
        rescored = rd.attach(batch, "rescored", folder / "scores.jsonl")
    diff = rd.token_frame(rescored, a="rescored", b="rollout")["diff"].abs()
    print(f"{len(diff)} tokens, |rescored - rollout| up to {diff.max():.1e}")
    assert len(diff) == SAMPLES * ROUNDS * WRITTEN
    assert diff.max() < 1e-5


if __name__ == "__main__":
    main()
