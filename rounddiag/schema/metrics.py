"""What a mean over tokens can be of: the metrics of `round_summary`."""

from __future__ import annotations

from rounddiag.schema.column import nat, number

# The column of each metric's mean; `core.divergence` has what it is of one token.
METRICS = {
    column.name: column
    for column in (
        nat("abs_diff", "mean |old - rollout| log-prob", "float64"),
        nat("diff", "mean old - rollout log-prob", "float64"),
        number("prob_diff", "mean |old - rollout| probability"),
        nat("k1", "mean k1 estimate of KL(rollout | old)", "float64"),
        nat("k2", "mean k2 estimate of KL(rollout | old)", "float64"),
        nat("k3", "mean k3 estimate of KL(rollout | old)", "float64"),
        number("chi2", "chi-squared divergence of old from rollout"),
        number("beyond", "share of tokens whose importance ratio is beyond limits"),
        nat(
            "train_rollout_logprob_abs_diff",
            "mean of sample means of |old - rollout| log-prob (slime)",
            "float64",
        ),
        nat("mismatch_kl", "mean k3 of trainer - inference (prime-rl)", "float64"),
    )
}
