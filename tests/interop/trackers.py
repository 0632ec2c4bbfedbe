"""Log a Recorder's metrics with the real W&B, offline, and the real TensorBoard.

    python tests/interop/trackers.py FOLDER

in an environment with both, with the checkout on PYTHONPATH. A small policy is trained
for 20 steps and samples with a copy of its weights in bfloat16, which is no longer
updated from step 10 on. The blocks of `rounddiag recipe metrics` run in the loop; then
the files of both are read, and `rounddiag watch` judges the folder in another process.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import wandb  # type: ignore[import-not-found]
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-not-found]
    EventAccumulator,
)
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from wandb.proto import wandb_internal_pb2  # type: ignore[import-not-found]

from tests.interop.readme import RECIPES, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS, ONSET = 20, 10
BLOCK = 1 << 15
LOG_PROBS = ("old_log_probs", "rollout_log_probs")
SAMPLES, ROUNDS, WORDS, SEEN, VOCABULARY = 48, 4, 16, 4, 96
REPORT, LOG, SCALARS, NUMBERS, CHECK = blocks(RECIPES, "metrics")


class Policy(nn.Module):
    """A recurrent model of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 64)
        self.body = nn.GRU(64, 96, batch_first=True)
        self.head = nn.Linear(96, VOCABULARY)

    def forward(self, ids: torch.Tensor, state: Any = None) -> Any:
        """Return log-probs of the next token, and the state."""
        hidden, state = self.body(self.embedding(ids), state)
        return self.head(hidden).float().log_softmax(-1), state


@torch.no_grad()
def sample(policy: Policy, step: int) -> dict[str, torch.Tensor]:
    """Write rounds of tokens, with observations between."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(VOCABULARY, (SAMPLES, 1), generator=generator)
    rows, probs, mask = [ids], [], []
    state = None
    for _ in range(ROUNDS):
        for _ in range(WORDS):
            log_probs, state = policy(ids, state)
            ids = torch.multinomial(log_probs[:, -1].exp(), 1, generator=generator)
            rows.append(ids)
            probs.append(log_probs[:, -1].gather(1, ids))
            mask.append(torch.ones_like(ids))
        for _ in range(SEEN):
            _, state = policy(ids, state)
            ids = torch.randint(VOCABULARY, (SAMPLES, 1), generator=generator)
            rows.append(ids)
            probs.append(torch.zeros(SAMPLES, 1))
            mask.append(torch.zeros_like(ids))
    return {
        "whole": torch.cat(rows, 1),
        "rollout_log_probs": torch.cat(probs, 1),
        "response_mask": torch.cat(mask, 1),
    }


def score(policy: Policy, whole: torch.Tensor) -> torch.Tensor:
    """Return the log-probs of all tokens but the first."""
    log_probs, _ = policy(whole[:, :-1])
    found: torch.Tensor = log_probs.gather(2, whole[:, 1:, None])[:, :, 0]
    return found


def train(folder: Path, *, is_synced: bool) -> None:
    """Train, record each step, and log with both trackers as the recipe says."""
    torch.manual_seed(0)
    policy = Policy()
    sampler = copy.deepcopy(policy).bfloat16()
    optimiser = torch.optim.Adam(policy.parameters(), 3e-3)
    steps = folder / "steps"
    names: dict[str, Any] = {}
    code = REPORT.replace("/data/diag", str(steps)).replace(
        "every=10", "every=1, diagnose=True, images=0"
    )
    exec(compile(code, "recipes.md", "exec"), names)  # noqa: S102 our own page
    recorder = names["recorder"]
    with (
        wandb.init(project="rounddiag", dir=folder, mode="offline"),
        SummaryWriter(str(folder / "events")) as writer,
    ):
        for step in range(STEPS):
            if is_synced or step < ONSET:
                sampler.load_state_dict(policy.state_dict())
            data = sample(sampler, step)
            whole = data.pop("whole")
            old = score(policy, whole)
            batch = {**data, "responses": whole[:, 1:], "old_log_probs": old.detach()}
            recorder.step(step, batch)
            recorder._verdicts._writer.close(timeout=600)  # no step is left out here
            recorder._writer.close()
            recorder._verdicts._writer.close(timeout=600)
            mask = data["response_mask"]
            good = ((whole[:, 1:] < VOCABULARY // 2) * mask).sum(1) / mask.sum(1)
            advantage = (good - good.mean()) / good.std()
            optimiser.zero_grad()
            (-(advantage[:, None] * old * mask).sum() / mask.sum()).backward()
            optimiser.step()
            metrics = {"reward": float(good.mean())}
            tensors = {"response_mask": mask, **{k: batch[k] for k in LOG_PROBS}}
            numbers = {"metrics": metrics, **tensors}
            exec(compile(NUMBERS, "recipes.md", "exec"), numbers)  # noqa: S102
            given = {"recorder": recorder, "metrics": metrics, "wandb": wandb}
            exec(compile(LOG, "recipes.md", "exec"), given)  # noqa: S102
            scalars = {"metrics": metrics, "writer": writer, "step": step}
            exec(compile(SCALARS, "recipes.md", "exec"), scalars)  # noqa: S102
        path = {"path": str(steps / f"step_{STEPS - 1}.parquet")}
        exec(compile(CHECK, "recipes.md", "exec"), path)  # noqa: S102
    recorder.close()
    assert (recorder.errors, recorder.dropped) == (0, 0)


def read_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a LevelDB log, which W&B writes after 7 bytes of its own."""
    at, parts = 7, b""
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < 7:  # padding
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield parts
            parts = b""


def read_wandb(folder: Path) -> tuple[list[dict[str, Any]], list[Path]]:
    """Return the logged rows of an offline run, and its HTML files."""
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    rows = []
    for data in read_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append(
                {
                    one.key or "/".join(one.nested_key): json.loads(one.value_json)
                    for one in items
                }
            )
    return rows, [*file.parent.glob("files/media/html/**/*.html")]


def main() -> None:
    """Train twice, and compare what both trackers have."""
    logging.basicConfig(format="%(name)s %(message)s")
    home = Path(sys.argv[1]).resolve()
    for name, is_synced in (("sound", True), ("unsynced", False)):
        folder = home / name
        folder.mkdir(parents=True)
        print(f"{name}:", flush=True)
        with (
            contextlib.chdir(folder)
            if sys.version_info >= (3, 11)
            else (contextlib.nullcontext())
        ):
            train(folder, is_synced=is_synced)
        rows, pages = read_wandb(folder)
        events = EventAccumulator(str(folder / "events")).Reload()
        found = {
            row["rounddiag/step"]: row["rounddiag/severity"]
            for row in rows
            if "rounddiag/severity" in row
        }
        scalars = [one.value for one in events.Scalars("rounddiag/severity")]
        print("  severity by step in W&B:", [*found.values()])
        print("  severity by step in TensorBoard:", scalars)
        means = [f"{row.get('rounddiag/mean_abs_diff', 0):.4f}" for row in rows]
        print("  mean |diff| in W&B:", *means)
        print("  names:", *sorted(events.Tags()["scalars"]))
        print(
            "  reports in W&B:",
            [f"{page.stat().st_size / 1e6:.1f} MB" for page in pages],
        )
        assert [*found] == [float(step) for step in range(STEPS)]
        assert scalars == [*found.values()]
        # The numbers of every step, also of those without a verdict.
        assert all("rollout_corr/kl" in row for row in rows if "reward" in row)
        assert bool(pages) == (4.0 in scalars)
        if is_synced:
            assert not any(scalars), "a false alarm"
        else:
            assert not any(scalars[:ONSET])
            assert any(scalars[ONSET:]), "no alarm"
        command = [sys.executable, "-m", "rounddiag", "watch", "--once"]
        done = subprocess.run(
            [*command, "--fail-on", "stale", str(folder / "steps")],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        print(done.stdout, done.stderr, f"exit code {done.returncode}", flush=True)
        assert done.returncode == (0 if is_synced else 1)


if __name__ == "__main__":
    main()
