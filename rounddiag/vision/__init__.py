"""What the agent saw and did: screenshots, image tokens and actions.

================  ==================================================================
`screenshots`     a screenshot as a file stores it, or rebuilt from the pixel values of
                  the model's processor
`plain_pictures`  a screenshot of bytes, a data URL, a Pillow image or pixels
`image_tokens`    which token stands for images, and where
`actions`         one action and its point on the screen; calls as actions
`action_parsers`  the grammars of actions that are tried, and a registry for others
================  ==================================================================
"""

from rounddiag.vision.action_parsers import (
    explain_no_action,
    parse_action,
    parse_actions,
    register_parser,
)
from rounddiag.vision.actions import Action
from rounddiag.vision.screenshots import (
    EncodedScreenshot,
    PatchScreenshot,
    RawScreenshot,
    Screenshot,
    StoredScreenshot,
    patch_screenshots,
)

__all__ = [
    "Action",
    "EncodedScreenshot",
    "PatchScreenshot",
    "RawScreenshot",
    "Screenshot",
    "StoredScreenshot",
    "explain_no_action",
    "parse_action",
    "parse_actions",
    "patch_screenshots",
    "register_parser",
]


def __dir__() -> list[str]:
    """List the public names, without the modules that hold them."""
    return __all__
