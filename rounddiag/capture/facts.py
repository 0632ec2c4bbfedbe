"""Facts that no batch holds.

`facts_from_verl` reads those of a run: engines, dtypes, sampling, parallel layout.
`round_record` has those of one call of the sampling engine, which is a round.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from rounddiag.batch.contexts import SAMPLER_PROMPTS
from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.columns import to_json

_ROLLOUT = "actor_rollout_ref.rollout"
_KWARGS = f"{_ROLLOUT}.engine_kwargs.vllm.mm_processor_kwargs"
_ACTOR = "actor_rollout_ref.actor"
_CORRECTION = "algorithm.rollout_correction"
_BYPASS = "`algorithm.rollout_correction.bypass_mode=True`"
# Each fact and where verl's configuration has it; the first place that is set counts.
_VERL = {
    "model": ("actor_rollout_ref.model.path",),
    "rollout_engine": (f"{_ROLLOUT}.name",),
    "rollout_dtype": (f"{_ROLLOUT}.dtype",),
    "rollout_quantization": (
        f"{_ROLLOUT}.quantization",
        f"{_ROLLOUT}.engine_kwargs.vllm.quantization",
        f"{_ROLLOUT}.engine_kwargs.sglang.quantization",
    ),
    "rollout_kv_cache_dtype": (
        f"{_ROLLOUT}.engine_kwargs.vllm.kv_cache_dtype",
        f"{_ROLLOUT}.engine_kwargs.sglang.kv_cache_dtype",
    ),
    "enforce_eager": (f"{_ROLLOUT}.enforce_eager",),
    "prefix_caching": (f"{_ROLLOUT}.enable_prefix_caching",),
    "chunked_prefill": (f"{_ROLLOUT}.enable_chunked_prefill",),
    "calculate_log_probs": (f"{_ROLLOUT}.calculate_log_probs",),
    "loss_agg_mode": (f"{_ACTOR}.loss_agg_mode",),
    "training_engine": (f"{_ACTOR}.strategy",),
    "training_dtype": (f"{_ACTOR}.fsdp_config.dtype", f"{_ACTOR}.megatron.dtype"),
    "training_parameter_dtype": (f"{_ACTOR}.fsdp_config.model_dtype",),
    "remove_padding": ("actor_rollout_ref.model.use_remove_padding",),
    "fused_kernels": ("actor_rollout_ref.model.use_fused_kernels",),
    "trainer_v1": ("trainer.use_v1",),
    "trainer_mode": ("trainer.v1.trainer_mode",),
    "checkpoints": ("trainer.default_local_dir",),
    "min_pixels": (f"{_KWARGS}.min_pixels",),
    "max_pixels": (f"{_KWARGS}.max_pixels",),
}
_GROUPS = {
    "sampling": [
        *("temperature", "top_p", "top_k", "repetition_penalty", "do_sample"),
        "logprobs_mode",
    ],
    "rollout_correction": [
        *("bypass_mode", "rollout_is", "rollout_is_threshold", "rollout_rs"),
        *("rollout_rs_threshold", "rollout_rs_threshold_lower", "loss_type"),
        *("rollout_token_veto_threshold", "rollout_is_batch_normalize"),
    ],
}
_PARALLEL = {
    "rollout_tensor": f"{_ROLLOUT}.tensor_model_parallel_size",
    "rollout_data": f"{_ROLLOUT}.data_parallel_size",
    "rollout_pipeline": f"{_ROLLOUT}.pipeline_model_parallel_size",
    "fsdp": f"{_ACTOR}.fsdp_config.fsdp_size",
    "ulysses": f"{_ACTOR}.ulysses_sequence_parallel_size",
    "megatron_tensor": f"{_ACTOR}.megatron.tensor_model_parallel_size",
    "megatron_pipeline": f"{_ACTOR}.megatron.pipeline_model_parallel_size",
    "megatron_context": f"{_ACTOR}.megatron.context_parallel_size",
    "nodes": "trainer.nnodes",
    "gpus_per_node": "trainer.n_gpus_per_node",
}
# `rounddiag.diagnose` reads the kind of a run from words such as "lora" in its facts,
# so a feature that is off is left out together with its name.
_FEATURES = {
    "lora_rank": ("actor_rollout_ref.model.lora_rank", 0),
    "lora_rank_megatron": ("actor_rollout_ref.model.lora.rank", 0),
    "rollout_expert_parallel": (f"{_ROLLOUT}.expert_parallel_size", 1),
    "training_expert_parallel": (f"{_ACTOR}.megatron.expert_model_parallel_size", 1),
    "router_replay": (f"{_ACTOR}.router_replay.mode", "disabled"),
    "rollout_routing_replay": (f"{_ROLLOUT}.enable_rollout_routing_replay", False),
}


def facts_from_verl(config: Any) -> dict[str, Any]:  # noqa: ANN401 OmegaConf need not be installed
    """Read the facts of a run from verl's configuration, for `Recorder(facts=...)`.

    Parameters
    ----------
    config : DictConfig or mapping
        `self.config` of verl's trainers, or the same keys as nested dictionaries.

    Returns
    -------
    dict
        Plain values by name: the model, the folder of checkpoints, the processor's
        limits in pixels, engines, dtypes, quantization, KV-cache dtype; under
        "sampling" the sampling parameters with `logprobs_mode`; under "parallel" the
        parallel layout; under "rollout_correction" its settings. What the
        configuration does not set is left out, as are features that are off.

    Examples
    --------
    >>> rollout = {"name": "vllm", "temperature": 0.7, "quantization": None}
    >>> facts_from_verl({"actor_rollout_ref": {"rollout": rollout}})
    {'rollout_engine': 'vllm', 'sampling': {'temperature': 0.7}}
    """
    facts = {name: _first(config, places) for name, places in _VERL.items()}
    for name, (place, off) in _FEATURES.items():
        value = _value(config, place)
        facts[name] = None if value == off else value
    places = {"sampling": _ROLLOUT, "rollout_correction": _CORRECTION}
    groups = {
        group: {name: _value(config, f"{places[group]}.{name}") for name in names}
        for group, names in _GROUPS.items()
    }
    groups["parallel"] = {name: _value(config, key) for name, key in _PARALLEL.items()}
    settings = {group: _without_none(values) for group, values in groups.items()}
    return {
        **_without_none(facts),
        **{k: values for k, values in settings.items() if values},
    }


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _first(config: Any, places: Iterable[str]) -> str | float | None:  # noqa: ANN401 as above
    values = (_value(config, place) for place in places)
    return next((value for value in values if value is not None), None)


def _value(config: Any, place: str) -> str | float | None:  # noqa: ANN401 as above
    """Return a plain value, None where it is missing or OmegaConf cannot resolve it."""
    try:
        for name in place.split("."):
            config = config.get(name)
    except Exception:  # noqa: BLE001 a missing part, or any error of an interpolation
        return None
    return config if isinstance(config, str | int | float) else None


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of facts as JSON represents them.

    Examples
    --------
    >>> plain_facts({"engines": ("vllm", "fsdp")})
    {'engines': ['vllm', 'fsdp']}
    """
    if not isinstance(facts, Mapping):
        raise BatchError.build(
            key="facts",
            expected="a dictionary, such as that of `facts_from_verl`",
            found=f"a {type(facts).__name__}",
            advice="Give each fact a name.",
        )
    return json.loads(to_json("facts", dict(facts)))


@cache
def installed_versions() -> dict[str, str]:
    """Return the versions of what is installed beside the trainer.

    Engines, and what resizes pictures: processors differ by it.
    """
    versions = {}
    for name in (
        *("torch", "transformers", "vllm", "sglang", "verl", "megatron-core"),
        *("pillow", "torchvision"),
    ):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def sampling_settings(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling parameters among the facts.

    Examples
    --------
    >>> sampling_settings({"sampling": {"temperature": 0.7}})
    {'temperature': 0.7}
    """
    settings = facts.get("sampling")
    return dict(settings) if isinstance(settings, Mapping) else {}


def why_nothing_to_record(facts: Mapping[str, Any]) -> str:
    """Return why these settings of verl leave nothing to compare; "" if they do not.

    Examples
    --------
    >>> why_nothing_to_record({"calculate_log_probs": False})
    'the sampler does not return its log-probabilities: set \
`actor_rollout_ref.rollout.calculate_log_probs=True`'
    """
    if facts.get("calculate_log_probs") is False:
        return (
            "the sampler does not return its log-probabilities: set"
            " `actor_rollout_ref.rollout.calculate_log_probs=True`"
        )
    correction = facts.get("rollout_correction")
    if isinstance(correction, Mapping) and correction.get("bypass_mode") is True:
        return (
            f"{_BYPASS} makes verl skip the training engine's pass, so there is nothing"
            " to compare: set it to False"
        )
    return ""


_HASH_BYTES = 8


def round_record(
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    *,
    images: Iterable[Any] = (),
    keep_prompt: bool = False,
    **facts: str | float | None,
) -> dict[str, Any]:
    """Record one call of the sampling engine, for the list `round_records` of a sample.

    Parameters
    ----------
    prompt_ids : sequence of int
        The input of the call: all tokens before this round.
    token_ids : sequence of int
        The generated tokens. A call that generated none is not a round and is dropped
        when the batch is saved.
    images : iterable of bytes or PIL images
        The screenshots that are new in this round.
    keep_prompt : bool
        Whether the ids of the prompt are kept too. A Recorder saves those
        of its `prove_samples`, where they are not the tokens before the round in the
        batch: `rounddiag.prove` scores the round after them.
    **facts
        Further facts, such as `request_id`, `weight_version`, `cached_tokens` and
        `finish_reason`.

    Returns
    -------
    dict
        `num_tokens`, `prompt_length`, `prompt_hash`, `num_images`, `image_hashes` (64
        bits each, in hexadecimal), the facts, and on request `prompt_ids`.

    Examples
    --------
    >>> record = round_record([5, 6, 7], [8, 9], finish_reason="stop")
    >>> record["prompt_length"], record["num_tokens"], record["finish_reason"]
    (3, 2, 'stop')
    """
    hashes = [_hash(v if isinstance(v, bytes) else v.tobytes()) for v in images]
    prompt = {SAMPLER_PROMPTS: [*map(int, prompt_ids)]} if keep_prompt else {}
    return {
        "num_tokens": len(token_ids),
        "prompt_length": len(prompt_ids),
        "prompt_hash": _hash(np.asarray(prompt_ids, dtype=np.int64).tobytes()),
        "num_images": len(hashes),
        "image_hashes": hashes,
        **prompt,
        **facts,
    }


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=_HASH_BYTES).hexdigest()
