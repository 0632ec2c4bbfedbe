"""What the agent saw and did: screenshots, and the actions in the text of a round.

Screenshots are stored ones, or rebuilt from what the model's processor made of them.
"""

from rounddiag.vision.actions import (
    Action,
    parse_action,
    parse_actions,
    register_parser,
)
from rounddiag.vision.patches import PatchScreenshot, patch_screenshots
from rounddiag.vision.screenshots import EncodedScreenshot, RawScreenshot, Screenshot

__all__ = [
    "Action",
    "EncodedScreenshot",
    "PatchScreenshot",
    "RawScreenshot",
    "Screenshot",
    "parse_action",
    "parse_actions",
    "patch_screenshots",
    "register_parser",
]
