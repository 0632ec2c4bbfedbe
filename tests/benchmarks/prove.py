"""CPU seconds of `rd.prove` by stage and class of hypothesis: two sizes of models.

    python -m tests.benchmarks.prove            # the sample model on `image_window`
    python -m tests.benchmarks.prove --real     # 135 M parameters, random weights

`--real` makes a model of the shape of SmolLM2-135M (49,152 ids, 30 layers of 576) with
random weights in a temporary folder (or `--folder`, to keep it), lets it write 16
samples of 600 tokens, and proves what one engine of them read or computed otherwise,
with nothing named. Classes: A needs the logits of plain passes only, B another pass, C
other weights or other pixels. Seconds are the processor's; memory is the peak of the
process. The last line of a case is what its passes cost with 7 B parameters: two FLOPs
a parameter and token, at a third of the 989 TFLOP/s that an H100 has in bfloat16.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import Self

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.scorer import Scorer

SAMPLES, ROUNDS, WRITTEN, OBSERVED, SYSTEM, PROMPT = 16, 3, 80, 80, 60, 120
OPEN, SIZE = 1, 49_152
PARAMETERS, FLOPS = 7e9, 989e12 / 3


def make_model(folder: Path) -> None:
    """Save a model of 135 M parameters with random weights."""
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=SIZE,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        initializer_range=0.04,
    )
    net = transformers.LlamaForCausalLM(config)
    net.model.norm.weight.data.fill_(4.0)  # logits of 4 nats: 3 nats of entropy
    net.save_pretrained(folder)


@torch.inference_mode()
def write_samples(engine: LocalEngine) -> tuple[Tensor, Tensor]:
    """Let the model write rounds; return ids and the mask of what it wrote."""
    from transformers import DynamicCache

    generator = torch.Generator().manual_seed(1)

    def read(number: int) -> Tensor:
        return torch.randint(5, SIZE, (SAMPLES, number), generator=generator)

    system = torch.cat([torch.tensor([OPEN]), read(SYSTEM - 1)[0]]).expand(SAMPLES, -1)
    opened = torch.full((SAMPLES, 1), OPEN)
    ids = [system, opened, read(PROMPT - SYSTEM - 1)]
    mask = [torch.zeros(SAMPLES, PROMPT, dtype=torch.long)]
    cache, new = DynamicCache(), torch.cat(ids, 1)
    for number in range(ROUNDS):
        for _ in range(WRITTEN):
            out = engine.model(input_ids=new, cache=cache, use_cache=True)
            chances = out.logits[:, -1].float().softmax(-1)
            new = torch.multinomial(chances, 1, generator=generator)
            ids.append(new)
        mask.append(torch.ones(SAMPLES, WRITTEN, dtype=torch.long))
        if number < ROUNDS - 1:
            observed = torch.cat([opened, read(OBSERVED - 1)], 1)
            ids.append(observed)
            new = torch.cat([new, observed], 1)
            mask.append(torch.zeros(SAMPLES, OBSERVED, dtype=torch.long))
    return torch.cat(ids, 1), torch.cat(mask, 1)


@torch.inference_mode()
def score(
    engine: LocalEngine, ids: Tensor, *, lost: int = 0, temperature: float = 1.0
) -> Tensor:
    """Score samples without their first ids, at a temperature."""
    rows = []
    for row in ids:
        hidden = engine.model.model(row[None, lost:]).last_hidden_state[0, :-1]
        logits = engine.model.lm_head(hidden).float() / temperature
        found = logits.gather(-1, row[lost + 1 :, None])[:, 0] - logits.logsumexp(-1)
        rows.append(torch.cat([torch.zeros(lost + 1), found]))
    return torch.stack(rows)


def make_batch(ids: Tensor, mask: Tensor, old: Tensor, rollout: Tensor) -> Batch:
    rows = {
        "response_ids": ids,
        "response_mask": mask,
        "old_log_probs": old,
        "rollout_log_probs": rollout,
    }
    return rd.Batch.from_rows(
        prompt_ids=list(ids[:, :PROMPT]),
        **{name: list(values[:, PROMPT:]) for name, values in rows.items()},
    )


def real_cases(folder: Path) -> tuple[str, dict[str, Batch]]:
    """Return a model's folder, and batches by the name of their fault."""
    model = folder / "model"
    saved = folder / "batches.pt"
    if not saved.is_file():
        make_model(model)
        engine = LocalEngine.open(str(model), dtype="float32")
        ids, mask = write_samples(engine)
        noisy = LocalEngine.open(str(model), dtype="bfloat16")
        sound, rollout = score(engine, ids), score(noisy, ids)
        columns = {
            "sound": (sound, rollout),
            "no system prompt": (score(engine, ids, lost=SYSTEM), rollout),
            "temperature 0.8": (sound, score(noisy, ids, temperature=0.8)),
        }
        torch.save((ids, mask, columns), saved)
    ids, mask, columns = torch.load(saved, weights_only=True)
    return str(model), {
        name: make_batch(ids, mask, *pair) for name, pair in columns.items()
    }


class Clock:
    """Adds the processor's seconds of passes by class of hypothesis."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.num_read = 0  # tokens of all passes
        self._score = Scorer._score

    def __enter__(self) -> Self:
        def timed(scorer: Scorer, chain: Sequence[Any], *args: Any, **more: Any) -> Any:
            begin, before = time.process_time(), scorer.clock.num_read
            try:
                return self._score(scorer, chain, *args, **more)
            finally:
                self.num_read += scorer.clock.num_read - before
                name = kind_of(chain, **more)
                spent = time.process_time() - begin
                self.seconds[name] = self.seconds.get(name, 0.0) + spent

        Scorer._score = timed  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Scorer._score = self._score  # type: ignore[method-assign]


def kind_of(chain: Sequence[Any], *, low_precision: bool = False) -> str:
    if not chain:
        return "low precision" if low_precision else "base"
    if all(one.is_free for one in chain):
        return "A"
    needs = {need for one in chain for need in one.needs}
    is_dear = any(one.weights for one in chain) or needs & {"weights", "resolution"}
    return "C" if is_dear else "B"


def run(name: str, batch: Batch, engine: Any, **options: Any) -> None:
    begin, wall = time.process_time(), time.perf_counter()
    with Clock() as clock:
        proof = rd.prove(batch, engine, **options)
    spent = time.process_time() - begin
    parts = {key: round(value, 1) for key, value in clock.seconds.items()}
    parts["rest"] = round(spent - sum(clock.seconds.values()), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{name}: {repr(proof).splitlines()[0]}\n  {spent:.1f} CPU s,"
        f" {time.perf_counter() - wall:.1f} s by the clock, peak {peak:.2f} GB;"
        f" {len(proof.frame)} rows, {proof.batch.num_samples} samples; {parts}"
    )
    flops = 2 * PARAMETERS * clock.num_read
    print(
        f"  {clock.num_read:,} tokens read: with 7 B parameters {flops:.1e} FLOP,"
        f" {flops / FLOPS:.0f} s on one H100"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--case")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} threads")
    if not options.real:
        engine = LocalEngine.open("sample_data/model")
        for name in ("image_window", "healthy"):
            run(name, rd.load(f"sample_data/{name}.parquet"), engine)
        return
    with tempfile.TemporaryDirectory() as temporary:
        model, cases = real_cases(options.folder or Path(temporary))
        engine = LocalEngine.open(model)
        for name, batch in cases.items():
            if options.case in {None, name}:
                run(name, batch, engine)


if __name__ == "__main__":
    main()
