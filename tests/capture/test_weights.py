"""Digests of weights, from the processes that send and receive to the step file."""

from __future__ import annotations

import os
import pickle
import platform
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.capture import Recorder, digest_weights
from rounddiag.checks.weights import ARRIVED, CHANGED
from tests.interop.readme import RECIPES, blocks

(
    VERL_SENDS,
    VERL_RECEIVES,
    EXTENSION,
    _,
    _,
    SKYRL_SENDS,
    SKYRL_RECEIVES,
    SKYRL_STEP,
    LOADS_ADAPTER,
) = blocks(RECIPES, "weights")

NAMES = [f"model.layers.{layer}.mlp.weight" for layer in range(40)]
BATCH = {
    "responses": torch.tensor([[5, 6]]),
    "response_mask": torch.tensor([[1, 1]]),
    "rollout_log_probs": torch.tensor([[-1.0, -2.0]]),
    "old_log_probs": torch.tensor([[-1.5, -2.0]]),
}


def weights(step: int) -> dict[str, torch.Tensor]:
    return {name: torch.full((4, 3), step + i) for i, name in enumerate(NAMES)}


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path, every=1, diagnose=False)


def recorded(recorder: Recorder, folder: Path, step: int) -> rd.Batch:
    recorder.step(step, BATCH)
    recorder.close()
    assert recorder.errors == 0
    return rd.load(folder / f"step_{step}.parquet")


def test_a_step_has_what_was_sent_and_received_before_it(
    recorder: Recorder, tmp_path: Path
) -> None:
    for step in (11, 12):
        recorder.weights_sent(weights(step), step)
        recorder.weights_received(weights(step), step)
    batch = recorded(recorder, tmp_path, 12)
    assert ARRIVED.check(batch).status == CHANGED.check(batch).status == "passed"
    assert batch.meta["trainer_version"] == 12

    recorder.weights_sent(weights(13), 13)
    recorder.weights_received(weights(12), 13)
    later = recorded(recorder, tmp_path, 13)
    assert ARRIVED.check(later).status == "failed"
    assert len(later.meta["weights"]["sent"]) == 3
    assert ARRIVED.check(rd.load(tmp_path / "step_12.parquet")).status == "passed"


def test_a_step_that_waits_to_be_written_does_not_see_what_comes_later(
    recorder: Recorder, tmp_path: Path
) -> None:
    recorder.weights_sent(weights(12), 12)
    recorder.step(12, BATCH)
    recorder.weights_sent({"another.weight": torch.ones(1)}, 12)
    recorder.close()
    (sent,) = rd.load(tmp_path / "step_12.parquet").meta["weights"]["sent"]
    assert "another.weight" not in sent["tensors"]


def test_processes_of_one_folder_share_them(recorder: Recorder, tmp_path: Path) -> None:
    trainer, worker = (pickle.loads(pickle.dumps(recorder)) for _ in range(2))  # noqa: S301
    trainer.weights_sent(weights(12), 12)
    worker.weights_received(weights(12), 12, worker="host-3")
    batch = recorded(recorder, tmp_path, 12)
    (received,) = batch.meta["weights"]["received"]
    assert (ARRIVED.check(batch).status, received["worker"]) == ("passed", "host-3")
    assert rd.open_run(tmp_path).steps == (12,)


def test_files_of_an_earlier_training_are_not_read(tmp_path: Path) -> None:
    Recorder(tmp_path).weights_sent(weights(90), 90)
    time.sleep(0.05)  # the clock of a file system may tick slowly
    recorder = Recorder(tmp_path, every=1, diagnose=False)
    assert "weights" not in recorded(recorder, tmp_path, 1).meta


def test_buckets_of_a_version_are_one_event(recorder: Recorder, tmp_path: Path) -> None:
    pairs = [*weights(12).items()]
    recorder.weights_sent(pairs, 12)
    for start in range(0, len(pairs), 7):
        recorder.weights_received(pairs[start : start + 7], 12)
    stored = recorded(recorder, tmp_path, 12).meta["weights"]
    (sent,), (received,) = stored["sent"], stored["received"]
    assert sent["tensors"] == received["tensors"]
    assert len(sent["tensors"]) == 16


def test_an_iterator_is_passed_on(recorder: Recorder, tmp_path: Path) -> None:
    pairs = [*weights(12).items()]
    assert [*recorder.weights_sent(iter(pairs), 12)] == pairs
    stored = recorded(recorder, tmp_path, 12).meta["weights"]["sent"][0]["tensors"]
    assert stored == digest_weights(pairs)


def test_the_last_versions_are_kept(recorder: Recorder, tmp_path: Path) -> None:
    for step in range(20):
        recorder.weights_sent(weights(step), step)
    sent = recorded(recorder, tmp_path, 20).meta["weights"]["sent"]
    assert [event["version"] for event in sent] == [*range(12, 20)]


def test_errors_never_reach_the_trainer(recorder: Recorder) -> None:
    for wrong in (3, [("a", "no tensor")], [3]):
        odd: Any = wrong
        assert recorder.weights_sent(odd, 1) is odd
    odd_pairs: Any = iter([("a", "no tensor")])
    assert [*recorder.weights_sent(odd_pairs, 1)] == [("a", "no tensor")]
    assert recorder.errors == 4


def test_without_a_folder_nothing_is_written() -> None:
    bad: Any = 3
    recorder = Recorder(bad)
    recorder.weights_sent(weights(1), 1)


class Shard(torch.Tensor):
    def full_tensor(self) -> torch.Tensor:
        return torch.ones(2)


def test_a_shard_is_refused() -> None:
    with pytest.raises(rd.errors.BatchError, match="shard"):
        digest_weights({"a": torch.ones(2).as_subclass(Shard)})


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float8_e4m3fn, torch.int8, torch.float64]
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (70_000,)])
def test_tensors_of_any_dtype_and_shape(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor = torch.ones(shape).to(dtype)
    digest = digest_weights({"a": tensor})["a"]
    assert digest == digest_weights({"a": tensor.clone()})["a"]
    assert digest["norm"] == pytest.approx(min(tensor.numel(), 14_000) ** 0.5)


@given(st.permutations(NAMES), st.integers(0, 11))
def test_neither_order_nor_strides_count_and_each_value_does(
    names: list[str], index: int
) -> None:
    tensors = weights(3)
    known = digest_weights(tensors)
    moved = {name: tensors[name].T.contiguous().T for name in names}
    assert digest_weights(moved) == known
    changed = {name: values.clone() for name, values in tensors.items()}
    for values in changed.values():
        values.view(-1)[index] += 1
    other = digest_weights(changed)
    assert all(other[name]["digests"] != known[name]["digests"] for name in known)


def run(code: str, folder: Path, **names: Any) -> dict[str, Any]:
    code = code.replace("/data/diag", str(folder))
    exec(compile(code, "recipes.md", "exec"), names)  # noqa: S102 our own page
    return names


def test_the_lines_for_verl_pass_weights_on(recorder: Recorder, tmp_path: Path) -> None:
    """The recorder of the trainer's driver; sender and receiver have their own."""
    names = {"global_steps": 12, "per_tensor_param": iter(weights(12).items())}
    sent = run(VERL_SENDS, tmp_path, self=SimpleNamespace(), **names)
    pairs = [*sent["per_tensor_param"]]
    assert [name for name, _ in pairs] == NAMES
    worker = SimpleNamespace(local_rank=3)
    for bucket in (pairs[:25], pairs[25:]):
        run(VERL_RECEIVES, tmp_path, self=worker, weights=bucket)
    batch = recorded(recorder, tmp_path, 12)
    assert ARRIVED.check(batch).status == "passed"
    assert batch.meta["weights"]["received"][0]["worker"] == 3


def test_the_worker_extension_of_vllm_notes_what_is_loaded(
    recorder: Recorder, tmp_path: Path
) -> None:
    loaded: list[Any] = []
    model = SimpleNamespace(load_weights=loaded.extend)
    worker = run(EXTENSION, tmp_path)["NotedWeights"]()
    worker.model_runner, worker.rank = SimpleNamespace(model=model), 1
    worker.note_weights(tmp_path)
    recorder.weights_sent(weights(12), 12)
    model.load_weights(weights(12).items())
    assert [name for name, _ in loaded] == NAMES
    assert ARRIVED.check(recorded(recorder, tmp_path, 12)).status == "passed"
    recorder.weights_sent(weights(13), 13)
    batch = recorded(recorder, tmp_path, 13)
    assert "the weights of step 12" in ARRIVED.check(batch).detail


def test_the_lines_for_skyrl(tmp_path: Path) -> None:
    trainer, worker = SimpleNamespace(global_step=10), SimpleNamespace(rank=0)
    tensors = {"sequences": "responses", "loss_mask": "response_mask"}
    tensors |= {"rollout_logprobs": "rollout_log_probs"}
    data = {name: BATCH[ours] for name, ours in tensors.items()}
    data["sequences"] = torch.tensor([[4, 5, 6]])
    data["attention_mask"] = torch.ones(1, 3, dtype=torch.int64)
    data["action_log_probs"] = BATCH["old_log_probs"]
    trainer.recorder = Recorder(tmp_path, every=10, diagnose=False)
    chunks = [
        SimpleNamespace(names=[name], tensors=[tensor])
        for name, tensor in weights(9).items()
    ]
    names = run(SKYRL_SENDS, tmp_path, self=SimpleNamespace(), weight_iterator=chunks)
    assert [*names["weight_iterator"]] == chunks
    received = [*weights(8).items()]
    run(SKYRL_RECEIVES, tmp_path, self=worker, weights=received)
    run(SKYRL_STEP, tmp_path, self=trainer, training_input=data)
    trainer.recorder.close()
    batch = rd.load(tmp_path / "step_10.parquet")
    assert (batch.prompt_ids, batch.num_tokens) == (torch.tensor([4]), 2)
    assert "16 of 16 tensors" in ARRIVED.check(batch).detail


def test_a_recorder_that_only_notes_weights_warns_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path)
    recorder.weights_received(weights(1), worker=2)
    del recorder
    assert caplog.messages == []


ODD = {
    "an event without a time": '[{"version": 1, "tensors": {}}]',
    "no list": '{"version": 1}',
    "null": "null",
    "a tensor that is a number": '[{"version": 1, "time": 1.5, "tensors": {"a": 5}}]',
    "a list as version": '[{"version": [], "time": 1.5, "tensors": {}}]',
    "deep": "[" * 10_000,
    "torn": '[{"version": 1, "ti',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
@pytest.mark.parametrize("kind", ["sent", "received_x"])
def test_a_step_is_saved_whatever_other_processes_wrote(
    recorder: Recorder, tmp_path: Path, text: str, kind: str
) -> None:
    file = tmp_path / f".weights_{kind}.json"
    file.write_text(text)
    os.utime(file, (time.time() + 5,) * 2)  # as if written after the start
    recorder.weights_sent(weights(3), 3)
    batch = recorded(recorder, tmp_path, 3)
    assert [event["version"] for event in batch.meta["weights"]["sent"]] == [3]
    assert batch.meta["weights"]["received"] == []


def test_what_ended_writers_left_is_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    host = platform.node().replace(".", "-")
    left = tmp_path / f".weights_sent.json.{host}.{ended.pid}"
    alive = tmp_path / f".weights_sent.json.{host}.{os.getpid()}"
    other = tmp_path / ".weights_sent.json.elsewhere.7"
    old = tmp_path / ".weights_received.json.elsewhere.7"
    for file in (left, alive, other, old):
        file.touch()
    os.utime(old, (time.time() - 90_000,) * 2)  # more than a day
    Recorder(tmp_path, every=1)
    assert {*tmp_path.glob(".weights_*")} == {alive, other}


@pytest.mark.parametrize("is_iterator", [False, True])
@pytest.mark.parametrize(
    ("part", "has_vision"),
    [
        ("model.visual.blocks.0.attn.qkv", True),  # Qwen2.5-VL
        ("model.vision_tower.encoder.layers.0.q_proj", True),  # Gemma, LLaVA
        ("model.language_model.layers.0.self_attn.q_proj", False),
    ],
)
def test_an_adapter_is_known_by_name_id_path_and_digest(
    recorder: Recorder,
    tmp_path: Path,
    part: str,
    *,
    is_iterator: bool,
    has_vision: bool,
) -> None:
    """As vLLM 0.32.0 does: prefixes by name and path, weights by id alone."""
    adapter = {"name": "step", "id": 3, "path": tmp_path / "lora"}
    language = "base_model.model.model.language_model.layers.{}.mlp.lora_A.weight"
    digests = []
    for step in (11, 12):
        tensors = {language.format(i): torch.full((2, 3), step) for i in range(40)}
        tensors[f"base_model.model.{part}.lora_A.weight"] = torch.ones(2, 3)
        given = iter(tensors.items()) if is_iterator else tensors
        received = recorder.weights_received(given, step, adapter=adapter)
        if is_iterator:
            assert len([*received]) == len(tensors)
        batch = recorded(recorder, tmp_path, step)
        stored = batch.meta["weights"]["received"][0]["adapter"]
        digests.append(stored.pop("digest"))
        assert stored == {
            **adapter,
            "path": str(tmp_path / "lora"),
            "has_vision": has_vision,
        }
    assert digests[0] != digests[1]  # the folder was overwritten under its name
    again = pickle.loads(pickle.dumps(recorder))  # noqa: S301
    assert again.errors == 0


def test_an_adapter_without_a_name_is_an_error(recorder: Recorder) -> None:
    recorder.weights_received(weights(1), 1, adapter={"id": 3})
    assert recorder.errors == 1


def test_the_lines_for_adapters_never_load_a_name_again(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import save_file

    lora = ModuleType("vllm.lora.request")
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(lora, "LoRARequest", lambda *a: asked.append(a), raising=False)
    monkeypatch.setitem(sys.modules, "vllm.lora.request", lora)

    def save(folder: str) -> None:
        Path(folder).mkdir(parents=True)  # a folder that is there already is an error
        file = f"{folder}/adapter_model.safetensors"
        save_file({"a.lora_A.weight": torch.ones(2)}, file)

    code = LOADS_ADAPTER.replace("/data/adapters", str(tmp_path / "adapters"))
    for step in (4, 5):
        model = SimpleNamespace(save_pretrained=save)
        names = {"step": step, "model": model, "recorder": recorder}
        exec(compile(code, "recipes.md", "exec"), names)  # noqa: S102 our own page
    assert len({request[0] for request in asked}) == 2
    stored = recorded(recorder, tmp_path, 5).meta["weights"]["received"][0]["adapter"]
    assert (stored["name"], stored["id"]) == asked[-1][:2]
