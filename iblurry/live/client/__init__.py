"""A live service from Python."""

from iblurry.live.client.client import Client, Prediction, TopLabel
from iblurry.live.client.upload import Receipt, Upload

__all__ = ["Client", "Prediction", "Receipt", "TopLabel", "Upload"]
