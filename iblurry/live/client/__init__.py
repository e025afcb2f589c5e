"""A live service from Python."""

from iblurry.live.client.client import Answer, Client, Guess
from iblurry.live.client.lesson import Lesson, Receipt

__all__ = ["Answer", "Client", "Guess", "Lesson", "Receipt"]
