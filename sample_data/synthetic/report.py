"""Prints the contents of a batch, and checks the quality of the agent."""

from tokenizers import Tokenizer

import rounddiag as rd

LEAST_SOLVED, LEAST_PARSED = 0.25, 0.9
SHOWN = 3


def shares(batch: rd.Batch) -> tuple[float, float]:
    """Return the share of solved samples and of actions in the grammar."""
    solved = (batch.sample_columns["status"] == "solved").mean()
    return float(solved), float(batch.round_columns["parsed"].mean())


def is_good(batch: rd.Batch) -> bool:
    """Tell whether enough tasks are solved and enough actions can be read."""
    solved, parsed = shares(batch)
    return solved >= LEAST_SOLVED and parsed >= LEAST_PARSED


def show(name: str, batch: rd.Batch, tokenizer: Tokenizer) -> None:
    """Print rewards, the mismatch of every round, and three trajectories."""
    solved, parsed = shares(batch)
    frame = rd.token_frame(batch)
    size = frame["diff"].abs()
    rounds = frame.assign(size=size).groupby("round")
    table = rounds.agg(
        samples=("sample", "nunique"), tokens=("size", "size"), mean=("size", "mean")
    )
    print(f"\n== {name}: {batch}")
    print(f"solved {solved:.0%}, actions that parse {parsed:.1%}")
    print(f"mean |diff| {size.mean():.4f} nats")
    print(table.to_string(float_format="{:.4f}".format))
    for index in range(0, SHOWN * 4, 4):
        print(f"-- {batch.sample_columns['task'][index]}")
        print(transcript(batch[index], tokenizer))


def transcript(one: rd.Batch, tokenizer: Tokenizer) -> str:
    """Return what the agent wrote, a line a round, and how it ended."""
    rounds = zip(one.rounds.start.tolist(), one.rounds.num_tokens.tolist(), strict=True)
    lines = [
        "   " + tokenizer.decode(one.response_ids[start : start + length].tolist())
        for start, length in rounds
    ]
    return "\n".join([*lines, f"   ({one.sample_columns['status'][0]})"])
