"""Screenshots: stored, or rebuilt from what the model's processor made of them."""

from rounddiag.vision.screenshots import (
    EncodedScreenshot,
    PatchScreenshot,
    Screenshot,
)

__all__ = ["EncodedScreenshot", "PatchScreenshot", "Screenshot"]
