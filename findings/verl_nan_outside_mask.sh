#!/bin/sh
# verl: a NaN at an observation token makes the logged loss NaN in three of four modes; the gradient
# is right in all four.
#
# Guess, before the run: the mask keeps it out, the loss is finite in every mode. (A second guess,
# when the loss was seen: then the gradient is NaN at those tokens.) Both missed.
#
# Versions: verl 0.9.1 (its arithmetic alone: transformers 5.24.0 and tensordict 0.15.3 are newer
# than it asks for, which pip says), torch 2.13.0 (CPU).
#
# What is so: old log-probs of which the tokens outside the response mask are NaN (not known).
# token-mean picks the tokens by the mask: finite. The three seq-mean modes multiply by the mask:
# NaN. The gradient of all four is finite and equal, to the bit, to the one with 0 in place of NaN,
# since the clamp of the log ratio passes no gradient for NaN. ppo_kl and pg_clipfrac are finite.
# masked_mean is finite, masked_whiten leaves the NaN where the mask is 0.
#
# Who meets it: whoever writes NaN for "no log-prob here" and changes loss_agg_mode. The loss
# curve is NaN from the first step on and the policy learns all the same; a guard that skips steps
# by their loss skips every step, one that looks at the gradient's norm skips none.
#
# Output seen:
#   token-mean: loss -0.9048, ppo_kl 0.1000, gradient finite and equal
#   seq-mean-token-sum: loss nan, ppo_kl 0.1000, gradient finite and equal
#   seq-mean-token-mean: loss nan, ppo_kl 0.1000, gradient finite and equal
#   seq-mean-token-sum-norm: loss nan, ppo_kl 0.1000, gradient finite and equal
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q --no-deps verl==0.9.1 || exit 3
"$tmp/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 transformers==5.24.0 tensordict==0.15.3 \
    ray==2.60.0 omegaconf==2.4.0 codetiming==1.4.0 pandas==3.1.1 \
    accelerate==1.15.0 dill==0.4.1 pillow==13.0.0 orjson==3.13.0 || exit 3
HF_HOME="$tmp/home"
export HF_HOME
"$tmp/venv/bin/python" -c "import verl.trainer.ppo.core_algos, verl.workers.config" || exit 3
"$tmp/venv/bin/python" -W ignore - <<'PY' || exit 1
import torch
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
from verl.utils.torch_functional import masked_mean, masked_whiten
from verl.workers.config import ActorConfig

mask = torch.tensor([[1.0, 1, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0]])
unknown = torch.where(mask > 0, torch.tensor(-1.0), torch.tensor(torch.nan))


def policy_loss(old_log_probs, mode):
    log_probs = torch.full((2, 6), -1.1, requires_grad=True)
    config = ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, ppo_mini_batch_size=2
    )
    loss, metrics = compute_policy_loss_vanilla(
        old_log_probs, log_probs, torch.ones(2, 6), mask, mode, config
    )
    loss.backward()
    return loss.item(), metrics["actor/ppo_kl"], log_probs.grad


is_nan = {}
for mode in (
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
):
    loss, divergence, gradient = policy_loss(unknown, mode)
    filled, _, expected = policy_loss(torch.nan_to_num(unknown, 0.0), mode)
    same = "finite and equal" if torch.equal(gradient, expected) else "other"
    print(f"{mode}: loss {loss:.4f}, ppo_kl {divergence:.4f}, gradient {same}")
    is_nan[mode] = loss != loss
    assert filled == filled and same == "finite and equal" and abs(divergence - 0.1) < 1e-6
assert list(is_nan.values()) == [False, True, True, True]
assert masked_mean(unknown, mask).item() == -1.0
assert masked_whiten(unknown, mask)[mask == 0].isnan().all()
PY
