"""A live service with a network of a user's own: its process builds the same, and its folder keeps to it."""

from __future__ import annotations

import asyncio

import pytest

from iblurry.components import objects
from iblurry.data.load import load
from iblurry.errors import FolderError, InputError
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from iblurry.network.registry import NETWORKS
from tests.laws import user_module
from tests.live.test_live_service import some, until

GIVEN = {"image": (1, 8, 8), "memory": 20, "max_classes": 12, "batch": 4}


@pytest.mark.slow
def test_a_registered_network_learns_in_the_service(tmp_path, monkeypatch):
    digits, folder = load("digits"), tmp_path / "live"
    settings = Settings.of(folder, network="dropout:width=10", **GIVEN)
    assert settings.network.startswith("dropout@")

    async def live():
        service = Service(folder, settings)
        await service.start()
        await service.learn(some(digits, 0, 12))
        await until(lambda: service.status()["model"] == 12)
        answers = await service.predict(digits.test.images[:3])
        await service.close()
        return answers

    assert asyncio.run(live()).probabilities.shape[0] == 3
    assert Settings.of(folder).network == settings.network
    with pytest.raises(FolderError, match="dropout@"):
        Settings.of(folder, network="layer_norm")
    del NETWORKS["dropout"]  # as in another process, without --import
    monkeypatch.setattr(objects, "_objects", {})
    with pytest.raises(InputError, match="dropout@"):
        Settings.of(folder).build_context()
    assert user_module.dropout.__name__ == "dropout"
