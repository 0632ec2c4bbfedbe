"""The causes that a finding can name, and what each means."""

CAUSES: dict[str, str] = {
    # From ids, masks and values.
    "filled_log_probs": "a fixed value in place of log-probs",
    "shifted_log_probs": "log-probs shifted against the tokens",
    "swapped_rows": "log-probs of another row",
    "padding_rows": "padding rows or copies",
    "mask_too_wide": "a mask that covers tokens the model did not write",
    "mask_punched": "holes that a rejection rule left in the mask",
    "identical_log_probs": "two bitwise equal columns",
    "retokenised": "token ids that are not the sampled ones",
    "prompt_mismatch": "different prompts in the two engines",
    "image_expansion": "image tokens counted differently by the engines",
    "position_ids": "different position ids",
    # Sampling.
    "temperature": "different temperatures",
    "truncated_sampling": "log-probs of a truncated distribution (top-p, top-k)",
    "logit_processor": "a penalty on repeated tokens in one engine",
    # Context.
    "dropped_image": "images that one engine did not see",
    "wrong_image": "images of another sample",
    "image_window": "older images that one engine no longer sees",
    "context_masked": "observations that one engine does not attend to",
    # Engines.
    "stale_cache": "a cache filled by older weights",
    "decode_path": "a sampler whose decoding differs from its prefill",
    "packing_leak": "rows of a pack that attend to each other",
    "batch_shape": "kernels that depend on the shape of the batch",
    "low_precision": "log-probs or logits in a short dtype",
    "moe_routing": "experts routed differently",
    "model_mismatch": "a model implemented differently",
    "lora_mismatch": "an adapter applied differently",
    # Weights.
    "stale_weights": "older weights in the sampler",
    "mixed_weights": "weights that changed while samples were written",
    "sync_broken": "weights that did not arrive intact",
    # Places whose cause is not known.
    "bad_worker": "one worker that differs from the others",
    "truncated_round": "samples cut off at the length limit",
    "outlier_tokens": "single tokens far off",
}
