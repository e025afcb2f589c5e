"""A live service from Python."""

from iblurry.live.client.client import Client
from iblurry.live.client.records import CorrectionReceipt, Prediction, Receipt, TopLabel
from iblurry.live.client.upload import Upload

__all__ = ["Client", "CorrectionReceipt", "Prediction", "Receipt", "TopLabel", "Upload"]
