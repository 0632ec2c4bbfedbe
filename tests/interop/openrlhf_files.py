"""Run OpenRLHF's rollout and experience code with the README's recipe, on a CPU.

Usage, in an environment that has OpenRLHF, with the checkout on PYTHONPATH:
`python openrlhf_files.py FOLDER`. Its trainer needs vLLM, flash-attn and several GPUs,
so it does not run here; what makes and fills an `Experience` does. Real are the agent's
loop, `SamplesGenerator`, `RemoteExperienceMaker` and `Actor.forward`. Stand-ins are the
engine that samples (the same small model, in the place of vLLM), the group of one
process that holds the actor, and the modules `vllm` and `flash_attn`, which are only
imported.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import ray
import torch

# A package called `tests` is there already, which one of the others installs.
from readme import RECIPES, blocks  # type: ignore[import-not-found]
from transformers import Qwen2Config, Qwen2ForCausalLM

from rounddiag.loaders import load

ROUNDS, STEP, NUM_SAMPLES = 2, 40, 2  # samples of each prompt
PROMPTS = ["1 2 3", "4 5"]


class StandIns(MetaPathFinder, Loader):
    """Finds modules that are only imported, and holds nothing in them."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        imported = name.partition(".")[0] in {"vllm", "flash_attn"}
        called = "triton" in name  # where it can be had; OpenRLHF has a way without
        return ModuleSpec(name, self, is_package=True) if imported > called else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        vars(module)["__getattr__"] = lambda name: MagicMock(name=name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave it empty."""


class Engine:
    """Samples with a small model, and answers as vLLM does."""

    def __init__(self, model: Any) -> None:
        self.model, self.calls = model, 0

    async def generate(self, tokens: list[int], *_: Any, **__: Any) -> Any:
        self.calls += 1
        new: list[int] = []
        scores = []
        while len(new) < 2 + self.calls % 3:
            with torch.no_grad():
                logits = self.model(torch.tensor([[*tokens, *new]])).logits[0, -1]
            log_probs = logits.float().log_softmax(-1)
            token = int(log_probs.exp().multinomial(1))
            scores.append({token: SimpleNamespace(logprob=log_probs[token].item())})
            new.append(token)
        output = SimpleNamespace(
            token_ids=new, text="", finish_reason="stop", logprobs=scores
        )
        return SimpleNamespace(outputs=[output])


class Tokenizer:
    """Words are numbers."""

    pad_token_id = 0

    def __call__(self, text: str, **_: object) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([[int(word) for word in text.split()]])}

    def decode(self, *_: object, **__: object) -> str:
        return ""


class Group:
    """Runs the actor in this process, and answers as a group of Ray's actors does."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def async_run_method_batch(self, method_name: str, **batches: list[Any]) -> Any:
        assert method_name == "forward"
        rows = [
            dict(zip(batches, row, strict=True))
            for row in zip(*batches.values(), strict=True)
        ]
        with torch.no_grad():
            return [ray.put([self.actor(**row)]) for row in rows]


def sampled(engine: Engine) -> list[dict[str, Any]]:
    """Let OpenRLHF's agent loop act: two rounds, and two tokens between."""
    from openrlhf.utils.agent import (
        AgentInstanceBase,
        MultiTurnAgentExecutor,
    )

    class Agent(AgentInstanceBase):  # type: ignore[misc]
        def __init__(self) -> None:
            self.round = 0

        async def reset(self, states: dict[str, Any], **_: object) -> dict[str, Any]:
            return states

        async def step(self, *_: object, **__: object) -> dict[str, Any]:
            self.round += 1
            done = self.round == ROUNDS
            feedback = "" if done else "7 8"
            reward = torch.tensor(float(engine.calls))
            return {"rewards": reward, "environment_feedback": feedback, "done": done}

    executor = MultiTurnAgentExecutor(Agent)
    params = SimpleNamespace(logprobs=1, max_tokens=None)
    return [
        asyncio.run(executor.execute(prompt, "", params, 64, Tokenizer(), engine))
        for prompt in PROMPTS
        for _ in range(NUM_SAMPLES)
    ]


def trainer(tokenizer: Tokenizer, group: Group) -> SimpleNamespace:
    """What the recipe and the real `RemoteExperienceMaker` know of the trainer."""
    from openrlhf.trainer.ppo_utils.experience_maker import (
        RemoteExperienceMaker,
    )

    args = MagicMock()
    args.algo.advantage.estimator = "group_norm"
    args.algo.kl.use_loss = False
    args.ds.ring_attn_size = args.ds.tensor_parallel_size = 1
    args.reward.clip_range = (-10, 10)
    args.reward.overlong_buffer_len = args.reward.stop_properly_penalty_coef = None
    args.rollout.micro_batch_size = 3
    args.rollout.n_samples_per_prompt = NUM_SAMPLES
    args.train.dynamic_batch_enable = False
    args.train.colocate_all = args.train.colocate_actor_ref = False
    maker = RemoteExperienceMaker(
        group,
        None,
        None,
        None,
        SimpleNamespace(value=0),
        MagicMock(args=args),
        tokenizer,
    )
    return SimpleNamespace(args=args, experience_maker=maker)


def experiences_of(
    responses: list[dict[str, Any]], tokenizer: Tokenizer, self: SimpleNamespace
) -> list[Any]:
    """Make experiences as `PPOTrainer` does: from samples, in micro-batches."""
    from openrlhf.trainer.ppo_utils.samples_generator import (
        SamplesGenerator,
    )

    generator = SamplesGenerator(MagicMock(args=self.args), None, None, tokenizer, [])
    samples = [
        generator._process_response_into_experience(response, max_len=64)
        for response in responses
    ]
    made: list[Any] = self.experience_maker.make_experience_batch(samples)
    return made


def check(path: Path, responses: list[dict[str, Any]]) -> None:
    """Compare what was read with what was sampled."""
    batch = load(path)
    starts = [response["action_ranges"][0][0] for response in responses]
    pairs = list(zip(responses, starts, strict=True))
    tokens = [token for r, at in pairs for token in r["observation_tokens"][at:]]
    scores = [score for r, at in pairs for score in r["rollout_log_probs"][at:]]
    prompts = [token for r, at in pairs for token in r["observation_tokens"][:at]]
    assert batch.require_ids().tolist() == tokens
    assert torch.equal(batch.log_probs("rollout"), torch.tensor(scores))
    assert batch.prompt_ids is not None
    assert batch.prompt_ids.tolist() == prompts
    written = batch.response_mask == 1
    diff = (batch.log_probs("old") - batch.log_probs("rollout"))[written].abs().max()
    assert 0 < diff < 1e-5, diff  # the same model, in padded batches
    assert (batch.num_rounds, batch.step) == (ROUNDS * len(responses), STEP), batch
    assert batch.group_ids == ("0", "0", "1", "1"), batch.group_ids
    assert batch.rewards is not None
    assert batch.rewards.tolist() == [response["reward"] for response in responses]
    print(f"{path.name}: {batch!r}, step {batch.step}, max |diff| {diff:.1e}")


def main() -> None:
    made = Path(sys.argv[1])
    made.mkdir(parents=True, exist_ok=True)
    sys.meta_path.append(StandIns())
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    from openrlhf.models import Actor

    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=64, **sizes, **heads)).eval()
    actor, tokenizer = Actor(model), Tokenizer()
    actor.packing_samples = False  # set only where it loads the model itself
    self = trainer(tokenizer, Group(actor))
    responses = sampled(Engine(model))
    experiences = experiences_of(responses, tokenizer, self)
    with tempfile.TemporaryDirectory() as folder:
        code = blocks(RECIPES, "openrlhf")[0]
        code = code.replace("/data/diag", folder)
        known = {"experiences": experiences, "global_step": STEP, "torch": torch}
        exec(compile(code, "recipes.md", "exec"), {"self": self, **known})  # noqa: S102 our own page
        (path,) = Path(folder).iterdir()
        check(path, responses)
        path.replace(made / f"openrlhf-{version('openrlhf')}_step_{STEP}.pt")
    ray.shutdown()


if __name__ == "__main__":
    main()
