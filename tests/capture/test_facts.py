from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rounddiag.batch.html import describe_sources
from rounddiag.capture import Recorder, facts_from_verl
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import SUPPRESSED, DataProto

# The names of verl 0.9.1 and 0.10.0.dev: rollout.yaml, actor.yaml, fsdp.yaml,
# megatron.yaml, rollout_correction.yaml and ppo_trainer.yaml.
CONFIG: dict[str, Any] = {
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen2.5-VL-7B-Instruct", "lora_rank": 0},
        "rollout": {
            "name": "vllm",
            "dtype": "bfloat16",
            "quantization": "fp8",
            "temperature": 0.7,
            "top_p": 1.0,
            "top_k": -1,
            "do_sample": True,
            "logprobs_mode": "processed_logprobs",
            "calculate_log_probs": True,
            "enforce_eager": False,
            "tensor_model_parallel_size": 2,
            "expert_parallel_size": 1,
            "enable_rollout_routing_replay": False,
            "engine_kwargs": {
                "vllm": {
                    "kv_cache_dtype": "fp8_e4m3",
                    "mm_processor_kwargs": {"max_pixels": 1_003_520},
                },
                "sglang": {},
            },
        },
        "actor": {
            "strategy": "fsdp",
            "ulysses_sequence_parallel_size": 1,
            "fsdp_config": {"dtype": "bfloat16", "model_dtype": "fp32"},
            "router_replay": {"mode": "disabled"},
        },
    },
    "algorithm": {
        "rollout_correction": {
            "bypass_mode": False,
            "rollout_is": "token",
            "rollout_is_threshold": 2.0,
            "rollout_rs": None,
        }
    },
    "trainer": {
        "use_v1": True,
        "nnodes": 1,
        "n_gpus_per_node": 8,
        "default_local_dir": "/data/checkpoints",
    },
}
FACTS = {
    "model": "Qwen/Qwen2.5-VL-7B-Instruct",
    "rollout_engine": "vllm",
    "rollout_dtype": "bfloat16",
    "rollout_quantization": "fp8",
    "rollout_kv_cache_dtype": "fp8_e4m3",
    "enforce_eager": False,
    "calculate_log_probs": True,
    "training_engine": "fsdp",
    "training_dtype": "bfloat16",
    "training_parameter_dtype": "fp32",
    "trainer_v1": True,
    "checkpoints": "/data/checkpoints",
    "max_pixels": 1_003_520,
    "sampling": {
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "do_sample": True,
        "logprobs_mode": "processed_logprobs",
    },
    "rollout_correction": {
        "bypass_mode": False,
        "rollout_is": "token",
        "rollout_is_threshold": 2.0,
    },
    "parallel": {"rollout_tensor": 2, "ulysses": 1, "nodes": 1, "gpus_per_node": 8},
}


class Config:
    """What is used of OmegaConf: `get`, which raises where it cannot resolve."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def get(self, name: str) -> Any:
        value = self._values.get(name)
        if value == "???":
            msg = "Missing mandatory value"
            raise KeyError(msg)
        return Config(value) if isinstance(value, dict) else value


def test_verl_s_configuration_is_read_by_its_names() -> None:
    assert facts_from_verl(CONFIG) == FACTS
    assert facts_from_verl(Config(CONFIG)) == FACTS


@pytest.mark.parametrize("config", [{}, None, Config({}), {"trainer": 3}])
def test_keys_that_are_missing_are_left_out(config: object) -> None:
    assert facts_from_verl(config) == {}


def test_what_omegaconf_cannot_resolve_is_left_out() -> None:
    rollout = {"name": "???", "dtype": "bfloat16"}
    config = Config({"actor_rollout_ref": {"rollout": rollout}})
    assert facts_from_verl(config) == {"rollout_dtype": "bfloat16"}


def test_a_feature_is_named_only_where_it_is_on() -> None:
    """`rd.diagnose` takes the kind of a run from such words."""
    text = str(facts_from_verl(CONFIG))
    for word in ("lora", "expert", "replay", "moe"):
        assert word not in text
    actor = {"router_replay": {"mode": "R3"}}
    model = {"lora_rank": 16}
    on = facts_from_verl({"actor_rollout_ref": {"actor": actor, "model": model}})
    assert on == {"lora_rank": 16, "router_replay": "R3"}


def test_every_file_has_the_facts(proto: DataProto, tmp_path: Path) -> None:
    facts = {**FACTS, "versions": ("0.11.0", "2.9")}
    with Recorder(tmp_path, facts=facts) as recorder:
        recorder.step(0, proto)
    batch = load_parquet(tmp_path / "step_0.parquet")
    assert batch.meta["facts"] == {**FACTS, "versions": ["0.11.0", "2.9"]}
    line = describe_sources(batch.meta)["facts of the run"]
    assert line.startswith("model Qwen/Qwen2.5-VL-7B-Instruct, rollout_engine vllm,")
    assert "sampling (temperature 0.7, top_p 1.0, top_k -1" in line
    assert "rollout_kv_cache_dtype fp8_e4m3" in batch._repr_html_()


def test_sampling_parameters_come_from_the_facts_where_the_batch_has_none(
    proto: DataProto, tmp_path: Path
) -> None:
    with Recorder(
        tmp_path, facts={"sampling": {"temperature": 0.5, "top_p": 0.9}}
    ) as r:
        r.step(0, proto)
        del proto.meta_info["temperature"]
        r.step(10, proto)
    with_own, without = (load_parquet(tmp_path / f"step_{i}.parquet") for i in (0, 10))
    assert with_own.meta["sampling"] == {"temperature": 0.7, "top_p": 0.9}
    assert without.meta["sampling"] == {"temperature": 0.5, "top_p": 0.9}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            ["vllm"],
            "`facts`: expected a dictionary, such as that of `facts_from_verl`; found a"
            " list. Give each fact a name.",
        ),
        (
            {"engine": object},
            "`facts`: expected numbers, texts, and lists and dictionaries of them;"
            " found an object of type type. Convert it, or leave it out.",
        ),
    ],
)
def test_facts_that_json_cannot_represent_are_left_out_with_a_word(
    facts: Any,
    message: str,
    proto: DataProto,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Recorder(tmp_path, facts=facts) as recorder:
        recorder.step(0, proto)
    start = "the Recorder was not set up with its `facts`: "
    assert caplog.messages == [f"{start}{message} {SUPPRESSED}"]
    assert "facts" not in load_parquet(tmp_path / "step_0.parquet").meta


class Tokenizer:
    name_or_path = "Qwen/Qwen2.5-VL-7B-Instruct"


@pytest.mark.parametrize("tokenizer", [Tokenizer(), Tokenizer.name_or_path])
def test_every_file_names_the_tokenizer(
    tokenizer: object, proto: DataProto, tmp_path: Path
) -> None:
    with Recorder(tmp_path, tokenizer=tokenizer) as recorder:
        recorder.step(0, proto)
    meta = load_parquet(tmp_path / "step_0.parquet").meta
    assert meta["tokenizer"] == "Qwen/Qwen2.5-VL-7B-Instruct"


def test_the_path_of_a_tokenizer_is_absolute_in_the_file(
    proto: DataProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    with Recorder(tmp_path / "diag", tokenizer="model") as recorder:
        recorder.step(0, proto)
    meta = load_parquet(tmp_path / "diag" / "step_0.parquet").meta
    assert meta["tokenizer"] == str(tmp_path / "model")


def test_a_tokenizer_that_is_not_there_is_left_out_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for tokenizer in (tmp_path / "model", str(tmp_path / "model")):
        message = (
            "`tokenizer`: expected a path that exists, or the name of a model; found"
            f" {str(tokenizer)!r}. Correct the path."
        )
        assert Recorder(tmp_path, tokenizer=tokenizer).errors == 1
        assert message in caplog.messages[-2]  # the last one says that it did nothing
    Recorder(tmp_path, tokenizer=3)
    assert "found a int without a name" in caplog.messages[-2]
