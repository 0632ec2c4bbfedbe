"""Healthy ranges of the mismatch by kind of run, with their sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.errors import require_one_of
from rounddiag.findings.bins import bins

# Noise follows the probability of a token. Mean |diff| in nats of tokens that are below
# 0.5, between, and above 0.9 likely: vLLM in bf16 against transformers in float32, a
# sound pair of a pretrained model of 135 M parameters, temperature 1.
_EDGES = np.log([0.5, 0.9])
SHAPE = (0.043, 0.018, 0.002)
# Published means do not say how likely their tokens were. Assumed for all of them: 60 %
# nearly certain and 20 % uncertain tokens. arXiv 2506.01939 reports over half with an
# entropy below 0.01 and 20 % above 0.672, in RL of a reasoning model.
MIX = (0.2, 0.2, 0.6)
# A k3 estimate of KL(rollout | old) beyond which no sound run is published: mixtures of
# experts reach 0.02 (NeMo-RL's test suites), a wrong prompt 0.15 to 1.75 (NeMo-RL
# 2260).
_BROKEN_KL = 0.1


@dataclass(frozen=True, kw_only=True)
class Range:
    """The usual level of one kind of run.

    Attributes
    ----------
    meaning: The kind of run, as a sentence names it: with its article, if it has one.
    usual: Mean |diff| up to which a batch is healthy, in nats.
    limit: Mean |diff| above which noise alone does not explain it, in nats.
    kl: k3 estimate of KL above which it does not either; see `limit_kl`.
    source: Where the numbers come from.
    is_routed: Whether a router chooses experts: single tokens that are far off are then
        consistent with different routes.
    is_drift: Whether updates lie between the two scores: older weights are then no
        finding.
    by_probability: Mean |diff| of tokens below 0.5, up to 0.9 and above 0.9 likely, as
        multiples of that of all. `usual` and `limit` then follow the tokens of a batch;
        without it they hold as they are, as in a range of your own.
    basis: What the levels rest on, as part of a sentence; empty for numbers of your
        own.
    of_mix: `usual` before it followed the tokens of a batch; None if it does not.
    """

    meaning: str
    usual: float
    limit: float
    source: str
    kl: float = _BROKEN_KL
    is_routed: bool = False
    is_drift: bool = False
    by_probability: tuple[float, float, float] | None = None
    basis: str = ""
    of_mix: float | None = None

    @property
    def limit_kl(self) -> float:
        """`kl`, or what tokens that all differ by `limit`, half of them up, amount to.

        Examples
        --------
        >>> REFERENCE["moe"].limit_kl
        0.1
        >>> round(Range(meaning="mine", usual=0.5, limit=1.0, source="").limit_kl, 3)
        0.543
        """
        with np.errstate(over="ignore"):
            return max(self.kl, float(np.cosh(self.limit)) - 1)

    def for_tokens(self, log_probs: Array) -> Range:
        """Return the range of tokens that are this likely.

        Examples
        --------
        >>> unlikely = REFERENCE["dense"].for_tokens(np.log([0.4, 0.6]))
        >>> round(unlikely.usual, 4), round(unlikely.limit, 4)
        (0.0455, 0.05)
        """
        if self.by_probability is None or not len(log_probs):
            return self
        factor = float(share_by_probability(log_probs) @ self.by_probability)
        usual = factor * self.usual
        # No published run has a higher limit for its less likely tokens.
        limit = max(min(factor, 1.0) * self.limit, usual)
        basis = _AS_LIKELY + self.basis
        return replace(self, usual=usual, limit=limit, basis=basis, of_mix=self.usual)

    def of_tokens(self, log_probs: Array) -> Array:
        """Return the |diff| that is usual of each of some tokens, in nats.

        Examples
        --------
        >>> REFERENCE["dense"].of_tokens(np.log([0.4, 0.95])).round(4)
        array([0.0642, 0.003 ])
        """
        usual = self.usual if self.of_mix is None else self.of_mix
        shape = np.array(self.by_probability or (1.0,) * len(SHAPE))
        return usual * shape[code_probability(log_probs)]


def code_probability(log_probs: Array) -> Array:
    """Return 0 for a token below 0.5 likely, 1 up to 0.9 and 2 above."""
    return bins(_EDGES, log_probs)


def share_by_probability(log_probs: Array) -> Array:
    """Return the shares of tokens below 0.5, up to 0.9 and above 0.9 likely."""
    counts = np.bincount(code_probability(log_probs), minlength=len(SHAPE))
    return counts / max(len(log_probs), 1)


_AS_LIKELY = "for tokens as likely as these"
# Edit or add to it: `rd.findings.REFERENCE["mine"] = rd.findings.Range(...)`.
REFERENCE: dict[str, Range] = {
    "same_engine": Range(
        meaning="one engine with another batch shape",
        usual=0.001, limit=0.05,
        source="miles docs/developer/debug.md; SkyRL packing test; prime-rl 3414",
    ),
    "fp32": Range(
        meaning="float32 on both sides",
        usual=0.001, limit=0.01,
        source="miles docs/developer/debug.md; slime reproducibility.md",
    ),
    "dense": Range(
        meaning="a dense model in bf16",
        usual=0.02, limit=0.05,
        source="SkyRL PR 2128, vime #64 and #274, trl #5312, NeMo-RL grpo.md, verl faq",
    ),
    "hybrid": Range(
        meaning="a hybrid model (Mamba, gated delta net) in bf16",
        usual=0.03, limit=0.06,
        source="SkyRL nemotron_3 README; NeMo-RL test suites",
    ),
    "moe": Range(
        meaning="a mixture of experts in bf16",
        usual=0.06, limit=0.15,
        source="verl PR 7242, verl-omni #637, miles #2722, NeMo-RL test suites",
        is_routed=True,
    ),
    "moe_replay": Range(
        meaning="a mixture of experts with replayed routes",
        usual=0.03, limit=0.06,
        source="SkyRL PR 2182; prime-rl docs", is_routed=True,
    ),
    "fp8": Range(
        meaning="FP8 on the sampling side",
        usual=0.05, limit=0.12,
        source="NeMo-RL qwen3-5.md; miles #2722",
    ),
    "nvfp4": Range(
        meaning="NVFP4 or MXFP8 on the sampling side",
        usual=0.12, limit=0.25,
        source="NeMo-RL functional tests",
    ),
    "vlm": Range(
        meaning="a dense vision-language model in bf16",
        usual=0.03, limit=0.075,
        source="Megatron-Bridge #1776, NeMo-RL PR 2360 and VLM suites, vllm #47425",
    ),
    "lora": Range(
        meaning="a dense model in bf16 with a LoRA adapter",
        usual=0.025, limit=0.06,
        source="SkyRL PR 2128 and 2182",
    ),
    "update": Range(
        meaning="a policy before and after the updates of one step",
        usual=0.05, limit=0.18,
        source="PPO's target_kl of 0.02, which the agent of the sample data reaches at"
        " a mean |diff| of 0.045, a |difference of probabilities| of 0.011 and r 0.985;"
        " its clip range of 0.2 (log 1.2 is 0.18); a mean of 0.15 clips 10 % of the"
        " tokens: tests/benchmarks/update_drift.py",
        is_drift=True,
    ),
}  # fmt: skip


def relative_to(mean: float, sizes: Sequence[float]) -> tuple[float, float, float]:
    """Return the sizes of three kinds of tokens as multiples of a mean."""
    low, middle, high = (size / mean for size in sizes)
    return low, middle, high


# The levels of an update are limits of the algorithm, not noise.
_PUBLISHED = relative_to(float(np.dot(MIX, SHAPE)), SHAPE)
REFERENCE |= {
    name: replace(
        levels,
        by_probability=_PUBLISHED,
        basis=", from a published mean rescaled with an assumed mix of probabilities",
    )
    for name, levels in REFERENCE.items()
    if not levels.is_drift
}

# Kinds in which only rounding lies between two sound engines.
DENSE = frozenset({"same_engine", "fp32", "dense", "vlm", "lora"})

# The distilled models of DeepSeek R1, and other models of the company, are dense.
_DEEPSEEK = r"deepseek (coder )?(v[23][\w.]*|r1(?!( \d+)? (distill|qwen)))"
# Words that name a kind, in the facts that describe the model and its numbers.
_WORDS = (
    ("nvfp4", r"nvfp4|fp4|mxfp8"),
    ("fp8", r"fp8|float8\w*|e4m3\w*"),
    ("moe", r"moe|\w+moe|a3b|a22b|mixtral|gpt oss|num \w*experts|" + _DEEPSEEK),
    ("hybrid", r"mamba\w*|nemotron h|gdn|qwen3\.5|qwen3 next"),
    ("lora", r"lora"),
    ("vlm", r"vl|vlm|\w+vl|vision\w*|internvl\w*|llava\w*|\d+v"),
)
# Facts that are read, by their last name.
_FACTS = re.compile(
    r"^(kind|model|model_type|model_name|model_path|architectures?|name_or_path|dtype"
    r"|torch_dtype|quantization|kv_cache_dtype|precision|router_replay|routing_replay"
    r"|num_(local_|routed_)?experts|lora|lora_(r|rank|path|name|adapter\w*)|adapter\w*"
    r"|rollout_dtype"
    r"|train_dtype|sampler_dtype|trainer_dtype)$",
    re.IGNORECASE,
)
_OFF = (None, False, 0, "", "none", "null", "false", "0", "no", "off")
# Class names of models, `Qwen2_5_VLForConditionalGeneration`, are split into words.
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


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
    values = " ".join(str(value) for value in facts.values())
    text = f"{' '.join(facts)} {values} {_WORD_STARTS.sub(' ', values)}".lower()
    text = re.sub(r"[^\w.]+|_", " ", text)
    if re.search(r"(router|routing) replay", text):
        return "moe_replay", True
    named = [kind for kind, words in _WORDS if re.search(rf"\b(?:{words})\b", text)]
    if named:
        return named[0], True
    says = re.search(r"\b(bfloat16|bf16)\b", text) is not None
    if batch.images is not None and any(batch.images):
        return "vlm", says
    if not says and len(re.findall(r"\bfloat32\b", text)) > 1:
        return "fp32", True
    return "dense", says


def _facts(meta: object, name: str = "") -> Iterator[tuple[str, object]]:
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
    is_single = name.lower().endswith("experts") and str(meta) == "1"
    if not is_off and not is_single:
        yield name, meta


def named_range(kind: str) -> Range:
    """Return the range of a kind."""
    advice = "Name one of these, or add it to REFERENCE."
    require_one_of(kind, sorted(REFERENCE), key="kind", advice=advice)
    return REFERENCE[kind]
