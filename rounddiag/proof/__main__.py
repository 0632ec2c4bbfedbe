"""`python -m rounddiag.proof score FOLDER --model MODEL`: score a folder by itself."""

from __future__ import annotations

import argparse
import sys

from rounddiag.errors import RounddiagError
from rounddiag.proof.folder import score_folder
from rounddiag.wording import printable


def main(arguments: list[str] | None = None) -> int:
    """Score a folder of `export_rescore(hypotheses=...)`; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m rounddiag.proof")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    score = commands.add_parser(
        "score",
        help="score what `rounddiag.export_rescore(hypotheses=...)` wrote",
        epilog="It can be interrupted, and goes on where it was.",
    )
    score.add_argument("folder", metavar="FOLDER")
    score.add_argument(
        "--model",
        required=True,
        metavar="MODEL",
        help="a folder or name that transformers opens, or the address of a vLLM or"
        " SGLang server",
    )
    score.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="LABEL=FOLDER",
        help="other weights that an engine may have had; can be repeated",
    )
    score.add_argument("--device", default="auto")
    options = parser.parse_args(arguments)
    checkpoints = dict(one.split("=", 1) for one in options.checkpoint if "=" in one)
    try:
        path = score_folder(
            options.folder,
            options.model,
            checkpoints=checkpoints,
            device=options.device,
        )
    except KeyboardInterrupt:
        return 130
    except (RounddiagError, OSError) as error:
        print(f"rounddiag.proof: {printable(str(error))}", file=sys.stderr)  # noqa: T201 a command
        return 1
    print(f"wrote {path}")  # noqa: T201 a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
