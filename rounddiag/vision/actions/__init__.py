"""Actions: what a round's text says that the agent does, and where."""

from rounddiag.vision.actions.action import Action
from rounddiag.vision.actions.grammars import (
    parse_action,
    parse_actions,
    register_parser,
)

__all__ = ["Action", "parse_action", "parse_actions", "register_parser"]
