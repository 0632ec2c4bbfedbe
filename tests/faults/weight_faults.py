"""Other weights, layers, routers and precision in the engine that scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.faults import engine, heads
from tests.faults.models import body
from tests.faults.pools import Pool
from tests.faults.rows import STEP, Array, Rows

RANK = 4


def other_weights(pool: Pool, knob: float, part: str = "") -> Any:
    """Return the net moved towards newer weights: knob 1 is 20 training steps."""
    net = engine.precise(pool.weights, torch.float32)
    newer = pool.agent.net.state_dict()
    state = {
        name: value + knob * (newer[name] - value) if part in name else value
        for name, value in net.state_dict().items()
    }
    net.load_state_dict(state)
    return net


def _rescored(pool: Pool, net: Any, **how: Any) -> Rows:
    return pool.rescored(engine.score(net, pool.contexts, pool.lengths, **how))


def stale_weights(pool: Pool, knob: float) -> Rows:
    """The sampler's weights are some steps old in all rows."""
    rows = _rescored(pool, other_weights(pool, knob))
    return Rows(**{**vars(rows), "version": [one - 1 for one in rows.version]})


def sync_broken(pool: Pool, knob: float) -> Rows:
    """One layer was not updated."""
    return _rescored(pool, other_weights(pool, knob, "layers.1."))


def sync_permuted(pool: Pool, knob: float) -> Rows:
    """Heads of one layer arrived in another order; the knob mixes them."""
    net = engine.precise(pool.weights, torch.float32)
    weight = body(net).layers[1].self_attn.q_proj.weight
    moved = weight.roll(weight.shape[0] // 4, 0)
    weight.data = weight + knob * (moved - weight)
    return _rescored(pool, net)


def lora_mismatch(pool: Pool, knob: float) -> Rows:
    """One engine scales the adapter otherwise."""
    net = engine.precise(pool.weights, torch.float32)
    first, last = pool.agent.older[60], pool.agent.net.state_dict()
    state = net.state_dict()
    for name, value in state.items():
        if "self_attn" in name and value.ndim == 2:
            u, s, v = torch.linalg.svd(last[name] - first[name], full_matrices=False)
            state[name] = value + knob * (u[:, :RANK] * s[:RANK]) @ v[:RANK]
    net.load_state_dict(state)
    return _rescored(pool, net)


def rope_base(pool: Pool, knob: float) -> Rows:
    """Another base of the rotary embedding."""
    net = engine.precise(pool.weights, torch.float32)
    rotary = body(net).rotary_emb
    old = rotary.inv_freq
    exponent = torch.arange(len(old)) / len(old)
    rotary.inv_freq = old / (1 + knob) ** exponent
    return _rescored(pool, net)


class Blend(nn.Module):
    """SiLU moved towards GELU."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, values: Tensor) -> Tensor:
        """Return the activation."""
        usual = functional.silu(values)
        return usual + self.share * (functional.gelu(values) - usual)


def other_activation(pool: Pool, knob: float) -> Rows:
    """A fused activation that is not the model's."""
    net = engine.precise(pool.weights, torch.float32)
    block = body(net).layers[-1].mlp
    block = getattr(block, "experts", block)
    block.act_fn = Blend(knob)
    return _rescored(pool, net)


@contextmanager
def hooked(modules: list[Any], hook: Any, *, before: bool = False) -> Iterator[None]:
    """Run with a hook on some modules."""
    with ExitStack() as stack:
        for module in modules:
            handle = (
                module.register_forward_pre_hook(hook)
                if before
                else module.register_forward_hook(hook)
            )
            stack.callback(handle.remove)
        yield


def router_noise(pool: Pool, knob: float) -> Rows:
    """Routers that see their input less exactly, and choose other experts."""
    generator = torch.Generator().manual_seed(pool.agent.seed)
    gates = [layer.mlp.gate for layer in body(pool.weights).layers]

    def blur(module: Any, values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        del module
        noise = torch.randn(values[0].shape, generator=generator)
        size = values[0].std(-1, keepdim=True)
        return (values[0] + knob * size * noise, *values[1:])

    return _rescored(
        pool, pool.weights, hook=lambda _: hooked(gates, blur, before=True)
    )


def coarse_body(pool: Pool, knob: float) -> Rows:
    """Every layer's output rounded: the knob is the relative step."""

    def coarse(module: Any, inputs: Any, values: Any) -> Any:
        del module, inputs
        first = values[0] if isinstance(values, tuple) else values
        scale = torch.exp2(torch.floor(torch.log2(first.abs().clamp(min=1e-20))))
        step = scale * knob
        rounded = torch.round(first / step) * step
        return (rounded, *values[1:]) if isinstance(values, tuple) else rounded

    layers = list(body(pool.weights).layers)
    return _rescored(pool, pool.weights, hook=lambda _: hooked(layers, coarse))


def bfloat16_head(pool: Pool, knob: float) -> Rows:
    """Logits and log-softmax in bfloat16."""
    del knob
    return _rescored(pool, pool.weights, head=heads.bfloat16_all)


def bfloat16_logits(pool: Pool, knob: float) -> Rows:
    """Logits in bfloat16, log-softmax in float32."""
    del knob
    return _rescored(pool, pool.weights, head=heads.bfloat16_logits)


def temperature(pool: Pool, knob: float) -> Rows:
    """The trainer divides logits by a temperature that the sampler does not have."""
    value = 1 / (1 + knob) if pool.agent.seed % 2 == 0 else 1 + knob
    return _rescored(pool, pool.weights, head=heads.tempered(value))


def switch_steps(pool: Pool) -> int:
    """Return the decoding step at which new weights arrive."""
    return int(np.median(pool.lengths) * 0.55)


def mixed_weights(pool: Pool, knob: float) -> Rows:
    """Weights arrive while rows are being written: before that, others are in use."""
    rows = _rescored(pool, other_weights(pool, knob))
    return _before_switch(pool, rows)


def _before_switch(pool: Pool, rows: Rows, rest: Rows | None = None) -> Rows:
    """Take rows before the switch, and the healthy ones, or others, after it."""
    at = switch_steps(pool)
    rest = rest or pool.rows
    splits = [max(0, at - one.start) for one in pool.episodes]

    def joined(name: str) -> list[Array]:
        return [
            np.concatenate([first[:split], second[split:]])
            for first, second, split in zip(
                getattr(rows, name), getattr(rest, name), splits, strict=True
            )
        ]

    version = [
        np.where(np.arange(len(ids)) < split, STEP - 1, STEP).astype(np.int16)
        for ids, split in zip(rows.ids, splits, strict=True)
    ]
    changed = {"old": joined("old"), "entropy": joined("entropy"), "version": version}
    return Rows(**{**vars(rows), **changed})


def _with_cached(pool: Pool, other: Any, lengths: list[int]) -> Rows:
    """Score with keys and values of other weights up to some position of each row."""
    ends = torch.tensor(lengths)
    layers, others = body(pool.weights).layers, body(other).layers

    @contextmanager
    def cached(rows: Tensor) -> Iterator[None]:
        kept: dict[tuple[int, str], Tensor] = {}
        with ExitStack() as stack:
            for i, (mine, theirs) in enumerate(zip(layers, others, strict=True)):
                for name in ("k_proj", "v_proj"):
                    key = (i, name)
                    module = getattr(theirs.self_attn, name)
                    stack.enter_context(hooked([module], _recorder(kept, key)))
                    module = getattr(mine.self_attn, name)
                    swap = _swapper(kept, key, ends[rows])
                    stack.enter_context(hooked([module], swap))

            def run_other(module: Any, args: Any, inputs: dict[str, Any]) -> None:
                del module, args
                body(other)(**inputs)

            handle = body(pool.weights).register_forward_pre_hook(
                run_other, with_kwargs=True
            )
            stack.callback(handle.remove)
            yield

    return _rescored(pool, pool.weights, hook=cached)


def _recorder(kept: dict[tuple[int, str], Tensor], key: tuple[int, str]) -> Any:
    def record(module: Any, inputs: Any, values: Tensor) -> None:
        del module, inputs
        kept[key] = values

    return record


def _swapper(
    kept: dict[tuple[int, str], Tensor], key: tuple[int, str], ends: Tensor
) -> Any:
    def swap(module: Any, inputs: Any, values: Tensor) -> Tensor:
        del module, inputs
        is_cached = torch.arange(values.shape[1]) < ends[:, None]
        return torch.where(is_cached[..., None], kept[key], values)

    return swap


def stale_prefix(pool: Pool, knob: float) -> Rows:
    """Keys and values of prompts kept from other weights."""
    other = other_weights(pool, knob)
    ends = [one.start - 1 for one in pool.episodes]
    return _with_cached(pool, other, ends)


def stale_in_flight(pool: Pool, knob: float) -> Rows:
    """Weights arrive mid-way and the cache of what was read before stays."""
    other = other_weights(pool, knob)
    at = switch_steps(pool)
    after = _with_cached(pool, other, [at] * len(pool.lengths))
    return _before_switch(pool, _rescored(pool, other), after)


def stale_vision(pool: Pool, knob: float) -> Rows:
    """The encoder's cache keeps features of pictures from other weights."""
    return _rescored(pool, pool.weights, eyes=other_weights(pool, knob, "visual"))


def decode_path(pool: Pool, knob: float) -> Rows:
    """A kernel goes wrong in some groups from one token on: values of a layer decay."""
    rng = np.random.default_rng(pool.agent.seed)
    names = sorted(set(pool.rows.group))
    broken = set(rng.permutation(names)[: max(1, len(names) // 4)].tolist())
    share = dict(zip(names, rng.uniform(0.05, 0.5, len(names)), strict=True))
    begins = torch.tensor(
        [
            one.start + int(share[group] * (len(one.ids) - one.start))
            if group in broken
            else 10**9
            for one, group in zip(pool.episodes, pool.rows.group, strict=True)
        ]
    )
    layer = body(pool.weights).layers[1].self_attn.v_proj

    def at_rows(rows: Tensor) -> Any:
        def spoil(module: Any, inputs: Any, values: Tensor) -> Tensor:
            del module, inputs
            bad = torch.arange(values.shape[1]) >= begins[rows][:, None]
            return torch.where(bad[..., None], values * (1 - knob), values)

        return hooked([layer], spoil)

    return _rescored(pool, pool.weights, hook=at_rows)


def table(fault: Any) -> dict[str, Any]:
    """Return the faults of this module by name."""
    return {
        "stale_weights": fault("stale_weights", stale_weights, 6.0),
        "mixed_weights": fault("mixed_weights", mixed_weights, 6.0),
        "sync_broken": fault("sync_broken", sync_broken, 8.0, kinds=("dense",)),
        "sync_permuted": fault(
            "sync_broken", sync_permuted, 1.0, kinds=("dense", "moe")
        ),
        "lora_mismatch": fault(
            "lora_mismatch", lora_mismatch, 4.0, kinds=("dense", "moe")
        ),
        "rope_base": fault("model_mismatch", rope_base, 9.0, kinds=("dense", "vision")),
        "other_activation": fault(
            "model_mismatch", other_activation, 20.0, kinds=("dense",)
        ),
        "router_noise": fault("moe_routing", router_noise, 2.0, kinds=("moe",)),
        "coarse_body": fault("low_precision", coarse_body, 0.5, kinds=("dense", "moe")),
        "bfloat16_head": fault(
            "low_precision", bfloat16_head, is_linear=True, kinds=("dense", "moe")
        ),
        "bfloat16_logits": fault(
            "low_precision", bfloat16_logits, is_linear=True, kinds=("dense",)
        ),
        "temperature": fault("temperature", temperature, 1.5),
        "stale_prefix": fault(
            "stale_cache", stale_prefix, 6.0, kinds=("dense", "vision")
        ),
        "stale_in_flight": fault(
            "stale_cache", stale_in_flight, 6.0, kinds=("dense", "moe")
        ),
        "stale_vision": fault("stale_cache", stale_vision, 8.0, kinds=("vision",)),
        "decode_path": fault("decode_path", decode_path, 8.0),
    }
