"""A live service from Python."""

from iblurry.live.client.client import Answer, Client, Guess, Receipt

__all__ = ["Answer", "Client", "Guess", "Receipt"]
