"""`python -m rounddiag` is the `rounddiag` command."""

from rounddiag.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
