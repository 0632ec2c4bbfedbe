"""The files of each framework; its `Format` objects are found by `detection`.

==================  ===============================================================
`verl`              DataProto (also Agent-Lightning, verl-agent, rLLM, ARPO, ROLL) and
                    the payload of verl's V1 trainer
`slime`             train and rollout files of slime, vime and miles
`skyrl`             the training input of a step
`nemo_rl`           train data, JSON lines
`prime_rl`          token export, JSON lines
`trainer_fields`    fields that the recipes save in TRL, OpenRLHF and AReaL
`_token_records`    shared by `nemo_rl` and `prime_rl`
`without_log_probs` files that hold nothing to show, and what to add instead
==================  ===============================================================

Trajectories, which `assembly.turns` makes a batch of:

==================  ===============================================================
`atif`              ATIF, which Harbor and others write
`verifiers_traces`  episodes and traces of verifiers, and prime-rl's annotations
`nemo_gym`          rollouts
`osworld`           runs: actions, and screenshots beside them
`agentlab`          episodes of AgentLab and BrowserGym
`dart_gui`          steps with the sampler's log-probs
`conversations`     results of verifiers and prime-rl, verl's decoded samples, logs of
                    completions, trajectories of mini-swe-agent, episodes of rLLM
`inspect_logs`      logs of Inspect
==================  ===============================================================
"""
