"""Healthy ranges of the mismatch by kind of run, with their sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rounddiag.errors import FrameError, nearest

if TYPE_CHECKING:
    from rounddiag.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Range:
    """The usual level of one kind of run.

    Attributes
    ----------
    meaning : str
    usual : float
        Mean |diff| up to which a batch is healthy, in nats.
    limit : float
        Mean |diff| above which noise alone does not explain it, in nats.
    kl : float
        Upper end of the k3 estimate of KL(rollout | old), in nats.
    mult_prob_error : float
        Upper end of mean exp|diff| (NeMo-RL's `token_mult_prob_error`).
    prob_diff : float
        Upper end of mean |old − rollout| probability.
    pearson : float
        Lower end of the correlation of probabilities.
    source : str
        Where the numbers come from.
    is_quantized : bool
        Whether the sampler's weights are quantized: within the range, ids that move the
        same way in different samples then do not indicate older weights.
    is_routed : bool
        Whether a router chooses experts: single tokens that are far off are then
        consistent with different routes.
    is_drift : bool
        Whether updates lie between the two scores: older weights are then no finding.
    """

    meaning: str
    usual: float
    limit: float
    kl: float
    mult_prob_error: float
    prob_diff: float
    pearson: float
    source: str
    is_quantized: bool = False
    is_routed: bool = False
    is_drift: bool = False


# Edit or add to it: `rd.findings.REFERENCE["mine"] = rd.findings.Range(...)`.
REFERENCE: dict[str, Range] = {
    "same_engine": Range(
        meaning="one engine, another batch shape",
        usual=0.001, limit=0.05, kl=1e-4, mult_prob_error=1.01, prob_diff=0.001,
        pearson=0.9999,
        source="miles docs/developer/debug.md; SkyRL packing test; prime-rl 3414",
    ),
    "fp32": Range(
        meaning="float32 on both sides",
        usual=0.001, limit=0.01, kl=1e-5, mult_prob_error=1.002, prob_diff=0.0005,
        pearson=0.9999,
        source="miles docs/developer/debug.md; slime reproducibility.md",
    ),
    "dense": Range(
        meaning="dense model in bf16",
        usual=0.02, limit=0.05, kl=0.002, mult_prob_error=1.05, prob_diff=0.005,
        pearson=0.99,
        source="SkyRL PR 2128, vime #64 and #274, trl #5312, NeMo-RL grpo.md, verl faq",
    ),
    "hybrid": Range(
        meaning="hybrid model (Mamba, gated delta net) in bf16",
        usual=0.03, limit=0.06, kl=0.02, mult_prob_error=1.05, prob_diff=0.01,
        pearson=0.98,
        source="SkyRL nemotron_3 README; NeMo-RL test suites",
    ),
    "moe": Range(
        meaning="mixture of experts in bf16",
        usual=0.06, limit=0.15, kl=0.01, mult_prob_error=1.1, prob_diff=0.015,
        pearson=0.98,
        source="verl PR 7242, verl-omni #637, miles #2722, NeMo-RL test suites",
        is_routed=True,
    ),
    "moe_replay": Range(
        meaning="mixture of experts with replayed routes",
        usual=0.03, limit=0.06, kl=0.002, mult_prob_error=1.05, prob_diff=0.008,
        pearson=0.99,
        source="SkyRL PR 2182; prime-rl docs", is_routed=True,
    ),
    "fp8": Range(
        meaning="FP8 on the sampling side",
        usual=0.05, limit=0.12, kl=0.004, mult_prob_error=1.1, prob_diff=0.015,
        pearson=0.98,
        source="NeMo-RL qwen3-5.md; miles #2722", is_quantized=True,
    ),
    "nvfp4": Range(
        meaning="NVFP4 or MXFP8 on the sampling side",
        usual=0.12, limit=0.25, kl=0.1, mult_prob_error=1.15, prob_diff=0.03,
        pearson=0.95,
        source="NeMo-RL functional tests", is_quantized=True,
    ),
    "vlm": Range(
        meaning="dense vision-language model in bf16",
        usual=0.03, limit=0.075, kl=0.02, mult_prob_error=1.05, prob_diff=0.008,
        pearson=0.99,
        source="Megatron-Bridge #1776, NeMo-RL PR 2360 and VLM suites, vllm #47425",
    ),
    "lora": Range(
        meaning="dense model in bf16 with a LoRA adapter",
        usual=0.025, limit=0.06, kl=0.002, mult_prob_error=1.05, prob_diff=0.006,
        pearson=0.99,
        source="SkyRL PR 2128 and 2182",
    ),
    "update": Range(
        meaning="policy before and after the updates of one step",
        usual=0.05, limit=0.18, kl=0.02, mult_prob_error=1.2, prob_diff=0.015,
        pearson=0.98,
        source="PPO's target_kl of 0.02, which the agent of the sample data reaches at"
        " a mean |diff| of 0.045, a |difference of probabilities| of 0.011 and r 0.985;"
        " its clip range of 0.2 (log 1.2 is 0.18); a mean of 0.15 clips 10 % of the"
        " tokens: tests/benchmarks/update_drift.py",
        is_drift=True,
    ),
}  # fmt: skip

# Words that name a kind, in the facts that describe the model and its numbers.
_WORDS = (
    ("nvfp4", r"nvfp4|fp4|mxfp8"),
    ("fp8", r"fp8|float8\w*|e4m3\w*"),
    ("moe", r"moe|\w+moe|a3b|a22b|deepseek[\w.-]*|mixtral|num experts|experts"),
    ("hybrid", r"mamba\w*|nemotron h|gdn|qwen3\.5|qwen3 next"),
    ("lora", r"lora"),
    ("vlm", r"vl|vlm|\w+vl|vision\w*|internvl\w*|llava\w*|\d+v"),
)
# Facts that are read, by their last name.
_FACTS = re.compile(
    r"^(kind|model|model_type|model_name|model_path|architectures?|name_or_path|dtype"
    r"|torch_dtype|quantization|kv_cache_dtype|precision|router_replay|routing_replay"
    r"|num_(local_|routed_)?experts|lora_\w+|lora|adapter\w*|rollout_dtype"
    r"|train_dtype|sampler_dtype|trainer_dtype)$",
    re.IGNORECASE,
)
_OFF = (None, False, 0, "", "none", "null", "false", "0", "no", "off")


def guess_kind(batch: Batch) -> tuple[str, bool]:
    """Return the kind of a batch, and whether its `meta` says so.

    `meta["facts"]["kind"]` counts first, then facts that name the model, its dtype,
    quantization, adapter or replayed routes. Otherwise a batch with images counts as
    `vlm` and any other as `dense`: these are assumptions.
    """
    facts = dict(_facts(batch.meta))
    stated = facts.get("kind")
    if isinstance(stated, str) and stated in REFERENCE:
        return stated, True
    names = " ".join(facts).lower()
    values = " ".join(str(value) for value in facts.values()).lower()
    text = re.sub(r"[^\w.]+|_", " ", f"{names} {values}")
    if re.search(r"(router|routing) replay", text):
        return "moe_replay", True
    found = [kind for kind, words in _WORDS if re.search(rf"\b(?:{words})\b", text)]
    if found:
        return found[0], True
    says = re.search(r"\b(bfloat16|bf16)\b", text) is not None
    if batch.images is not None and any(batch.images):
        return "vlm", says
    if not says and len(re.findall(r"\bfloat32\b", text)) > 1:
        return "fp32", True
    return "dense", says


def _facts(meta: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield the facts that name a kind, without those that are off."""
    if isinstance(meta, Mapping):
        for key, value in meta.items():
            if key not in ("checks", "source"):
                yield from _facts(value, str(key))
        return
    if not _FACTS.match(name):
        return
    if isinstance(meta, list | tuple):
        meta = " ".join(map(str, meta))
    is_off = meta in _OFF or (isinstance(meta, str) and meta.lower() in _OFF)
    if not is_off:
        yield name, meta


def named_range(kind: str) -> Range:
    """Return the range of a kind."""
    if kind in REFERENCE:
        return REFERENCE[kind]
    raise FrameError.build(
        key="kind",
        expected=f"one of {sorted(REFERENCE)}",
        found=repr(kind),
        advice=nearest(kind, REFERENCE, "Name one of these, or add it to REFERENCE."),
    )
