"""Screenshots: stored, or rebuilt from what the model's processor made of them."""

from rounddiag.vision.patches import PatchScreenshot, patch_screenshots
from rounddiag.vision.raw import RawScreenshot
from rounddiag.vision.screenshots import EncodedScreenshot, Screenshot

__all__ = [
    "EncodedScreenshot",
    "PatchScreenshot",
    "RawScreenshot",
    "Screenshot",
    "patch_screenshots",
]
