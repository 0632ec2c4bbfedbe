"""The files of each framework; its `Format` objects are found by `detection`.

==================  ===============================================================
`verl`              DataProto (also Agent-Lightning, verl-agent, rLLM, ARPO, ROLL) and
                    the payload of verl's V1 trainer
`slime`             train and rollout files of slime, vime and miles
`skyrl`             the training input of a step
`nemo_rl`           train data, JSON lines
`prime_rl`          token export, JSON lines
`verifiers_traces`  episodes of verifiers, and prime-rl's annotations of them
`trainer_fields`    fields that the recipes save in TRL, OpenRLHF and AReaL
`without_log_probs` files that hold nothing to diagnose, and what to add instead
`_token_records`    shared by `nemo_rl` and `prime_rl`
==================  ===============================================================
"""
