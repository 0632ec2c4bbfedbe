"""Preflight against a real vLLM: sound configurations pass, planted faults are found.

    python tests/interop/vllm_preflight.py [NAME ...]

in an environment with vLLM, with the checkout on PYTHONPATH. A server is started for
each case, with the sample model or a small text model; `sync` loads adapters into it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vllm_rescore import PORT, wait  # type: ignore[import-not-found]  # others have `tests`

import rounddiag as rd
from tests.proof.preflight_bench import BOS, DROPS_THOUGHTS, text_model

MODEL = Path(__file__).parents[2] / "sample_data" / "model"
SERVE = [
    "--host", "127.0.0.1", "--port", str(PORT), "--max-model-len", "1024",
    "--enforce-eager", "--enable-scale-out", "--gpu-memory-utilization", "0.2",
    "--enable-prompt-tokens-details",
]  # fmt: skip
PICTURES = ["--limit-mm-per-prompt", '{"image": 12, "video": 0}']
ADAPTERS = ["--enable-lora", "--max-lora-rank", "8"]
LOAD = f"""\
import json, sys, urllib.request
from pathlib import Path
folder = Path(sys.argv[-1])
body = dict(lora_name=folder.name, lora_path=str(folder))
request = urllib.request.Request(
    "http://127.0.0.1:{PORT}/v1/load_lora_adapter",
    json.dumps(body).encode(),
    dict([("Content-Type", "application/json")]),
)
urllib.request.urlopen(request).read()
"""


@dataclass
class Case:
    """How a server is started.

    Attributes
    ----------
    checks: Those that have to fail, and no others; empty for a sound configuration.
    sync: The script that is run with the folder of an adapter, if any is.
    template: From the model's chat template to that of the server.
    """

    options: Sequence[str] = ()
    checks: Sequence[str] = ()
    dtype: str = "bfloat16"
    sees: bool = False
    sync: str = ""
    template: Mapping[str, str] = field(default_factory=dict)


CASES = {
    "text": Case(),
    "text, float32": Case(dtype="float32"),
    "text, no cache": Case(["--no-enable-prefix-caching"]),
    "text, small chunks": Case(["--max-num-batched-tokens", "64"]),
    "pictures": Case(PICTURES, sees=True),
    "pictures, no cache": Case([*PICTURES, "--no-enable-prefix-caching"], sees=True),
    "adapters": Case(ADAPTERS, sync=LOAD),
    "processed log-probs, thoughts dropped, update never delivered": Case(
        ["--logprobs-mode", "processed_logprobs"],
        checks=["ids", "sampling", "weights"],
        sync="pass",
        # vLLM gives this template text in parts, since it reads parts.
        template={
            old.replace("message.content", name): new.replace("message.content", name)
            for name in ("message.content", "part.text")
            for old, new in [DROPS_THOUGHTS]
        },
    ),
    "bos twice": Case(
        checks=["ids"], template={"{%- for message": BOS + "{%- for message"}
    ),
    "3 prompt tokens lost": Case(
        checks=["ids"], template={"<|im_start|>' + message.role + '\n": "<|im_start|>"}
    ),
}


@contextmanager
def running(case: Case, model: str, folder: Path) -> Iterator[None]:
    """Run `vllm serve` for a case."""
    options = [*SERVE, *case.options, "--dtype", case.dtype]
    if case.template:
        text = (Path(model) / "chat_template.jinja").read_text()
        for old, new in case.template.items():
            assert old in text, text
            text = text.replace(old, new, 1)
        file = folder / "served.jinja"
        file.write_text(text)
        options += ["--chat-template", str(file)]
    program = str(Path(sys.executable).with_name("vllm"))
    command = [program, "serve", model, *options]
    with subprocess.Popen(command, stdout=sys.stderr) as server:
        try:
            wait(server)
            yield
        finally:
            server.terminate()


def fly(case: Case, folder: Path) -> rd.Preflight:
    """Return the preflight of a case."""
    model = str(MODEL) if case.sees else text_model(folder)
    script = folder / "sync.py"
    script.write_text(case.sync)
    after = f"{sys.executable} {script}" if case.sync else None
    with running(case, model, folder):
        return rd.preflight(model, f"http://127.0.0.1:{PORT}", after=after)


def main() -> None:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    wrong = []
    for name in sys.argv[1:] or CASES:
        case, begin = CASES[name], time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            result = fly(case, Path(folder))
        is_right = set(result.failed) == set(case.checks)
        is_right = is_right and (bool(case.checks) or result.passed)
        wrong += [] if is_right else [name]
        print(f"{name}: {time.perf_counter() - begin:.0f} s\n{result}\n", flush=True)
    assert not wrong, wrong


if __name__ == "__main__":
    main()
