"""Score the sample data again: with transformers, and with vLLM offline and served.

    python tests/interop/vllm_rescore.py FOLDER

in an environment with vLLM, with the checkout on PYTHONPATH. Ids and screenshots of
`healthy.parquet` are exported, and scored with `sample_data/model`: by transformers in
float32, which must give the file's `old_log_probs`; by `rounddiag recipe rescore-vllm`;
and by a server, through `/inference/v1/generate`. vLLM sampled these tokens: its
prefill must agree with what it recorded as it decoded.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

import rounddiag as rd
from tests.interop.readme import RECIPES, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "sample_data" / "model"
SAMPLES = 8
PORT = 8123
SERVE = [
    "--host", "127.0.0.1", "--port", str(PORT), "--dtype", "bfloat16",
    "--max-model-len", "1024", "--enforce-eager", "--enable-scale-out",
    "--gpu-memory-utilization", "0.2", "--logprobs-mode", "processed_logprobs",
    "--limit-mm-per-prompt", '{"image": 8, "video": 0}',
]  # fmt: skip
IMAGE = 5
EXACT = 1e-4  # nat: the largest difference of two passes in float32
CLOSE = 0.005  # nat: a mean of prefill against decoding


def script(folder: Path) -> str:
    """Return the recipe's script for vLLM with our model and folders."""
    (code,) = blocks(RECIPES, "rescore-vllm")
    code = code.replace("folder/", f"{folder}/exported/")
    code = code.replace('"scores.jsonl"', f'"{folder}/offline.jsonl"')
    options = (
        'dtype="bfloat16", max_model_len=1024, enforce_eager=True,'
        ' gpu_memory_utilization=0.2, limit_mm_per_prompt={"image": 8, "video": 0}'
    )
    return code.replace('LLM("the/model")', f'LLM("{MODEL}", {options})')


def post(path: str, body: Any = None) -> Any:
    """Ask the server."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}",
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310
        return json.loads(answer.read() or "{}")


def wait(server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers."""
    while not answers():
        assert server.poll() is None, "the server ended"
        time.sleep(1)
    print("server:", post("/version"))


def answers() -> bool:
    """Tell whether the server is up."""
    try:
        post("/version")
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


@contextmanager
def running(model: Path) -> Iterator[None]:
    """Run `vllm serve` with a model."""
    program = Path(sys.executable).with_name("vllm")
    command = [str(program), "serve", str(model), *SERVE]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            wait(server)
            yield
        finally:
            server.terminate()


def serve(exported: Path, scores: Path) -> None:
    """Score the exported samples through a server."""
    with running(MODEL), scores.open("w") as out:
        for line in (exported / "samples.jsonl").read_text().splitlines():
            out.write(json.dumps(served_row(json.loads(line), exported)) + "\n")


def served_row(sample: dict[str, Any], exported: Path) -> dict[str, Any]:
    """Return the scores of one sample."""
    ids = sample["prompt_ids"] + sample["response_ids"]
    kept = [
        t for t, last in zip(ids, [None, *ids], strict=False) if {t, last} != {IMAGE}
    ]
    parts = []
    for name in sample["images"]:
        data = base64.b64encode((exported / name).read_bytes()).decode()
        url = f"data:image/png;base64,{data}"
        parts.append({"type": "image_url", "url": url})
    answer = post(
        "/inference/v1/generate",
        {
            "model": str(MODEL),
            "token_ids": kept,
            "content_parts": parts,
            "sampling_params": {"max_tokens": 1, "prompt_logprobs": 0},
        },
    )
    size = len(sample["response_ids"])
    found = answer["prompt_logprobs"][-size:]
    assert len(answer["prompt_logprobs"]) == len(ids), "other numbers of image tokens"
    return {
        "sample": sample["sample"],
        "sample_id": sample["sample_id"],
        "token_ids": sample["response_ids"],
        "log_probs": [
            given[str(token)]["logprob"]
            for token, given in zip(sample["response_ids"], found, strict=True)
        ],
    }


def score_as_training(exported: Path, scores: Path) -> None:
    """Score the exported samples with transformers, from what the folder says."""
    model = AutoModelForImageTextToText.from_pretrained(MODEL, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(MODEL)
    with scores.open("w") as out, torch.inference_mode():
        for line in (exported / "samples.jsonl").read_text().splitlines():
            sample = json.loads(line)
            ids = torch.tensor([sample["prompt_ids"] + sample["response_ids"]])
            shots = [Image.open(exported / n).convert("RGB") for n in sample["images"]]
            pixels = processor.image_processor(images=shots, return_tensors="pt")
            is_image = (ids == IMAGE).int()
            logits = model(input_ids=ids, mm_token_type_ids=is_image, **pixels).logits
            log_probs = logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
            row = {"sample": sample["sample"], "sample_id": sample["sample_id"]}
            row["token_ids"] = sample["response_ids"]
            row["log_probs"] = log_probs[len(sample["prompt_ids"]) - 1 :].tolist()
            out.write(json.dumps(row) + "\n")


def differences(batch: rd.Batch, name: str, scores: Path) -> dict[str, Any]:
    """Compare a score with what vLLM recorded, and with training."""
    scored = rd.attach(batch, name, scores)
    found = {}
    for other in ("rollout", "old"):
        size = rd.token_frame(scored, a=name, b=other)["diff"].abs()
        print(f"{name} against {other}: mean {size.mean():.2g}, max {size.max():.2g}")
        found[other] = size
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    batch = rd.load(ROOT / "sample_data" / "healthy.parquet")[:SAMPLES]
    rd.export_rescore(batch, folder / "exported")
    score_as_training(folder / "exported", folder / "trained.jsonl")
    trained = differences(batch, "trained", folder / "trained.jsonl")
    assert trained["old"].max() < EXACT
    (folder / "offline.py").write_text(f"IMAGE = {IMAGE}\n" + script(folder))
    environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    subprocess.run([sys.executable, folder / "offline.py"], check=True, env=environment)
    offline = differences(batch, "offline", folder / "offline.jsonl")
    serve(folder / "exported", folder / "served.jsonl")
    served = differences(batch, "served", folder / "served.jsonl")
    assert max(one["rollout"].mean() for one in (offline, served)) < CLOSE


if __name__ == "__main__":
    main()
