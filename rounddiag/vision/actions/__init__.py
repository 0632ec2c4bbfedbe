"""The actions in the text of a round, and their points on the screen.

==========  =======================================================================
`action`    one action, and its point in pixels of a picture
`calls`     a call as an action
`grammars`  the grammars that are tried, and a registry for others
==========  =======================================================================
"""

from rounddiag.vision.actions.action import Action
from rounddiag.vision.actions.grammars import (
    parse_action,
    parse_actions,
    register_parser,
)

__all__ = ["Action", "parse_action", "parse_actions", "register_parser"]
