"""The files of each framework; every module ends in its `Format`.

==================  ===============================================================
`verl`              DataProto (also Agent-Lightning, verl-agent, rLLM, ARPO, ROLL) and
                    the payload of verl's V1 trainer
`slime`             train and rollout files of slime and vime
`miles`             slime's columns, one file a rank
`skyrl`             the training input of a step
`nemo_rl`           train data, JSON lines
`prime_rl`          token export, JSON lines
`trl`, `openrlhf`,  what a line pasted into the trainer saves, under the trainer's own
`areal`             names
`_trainer_fields`   shared by `trl`, `openrlhf`, `areal` and ROLL
`_token_records`    shared by `nemo_rl` and `prime_rl`
==================  ===============================================================
"""
