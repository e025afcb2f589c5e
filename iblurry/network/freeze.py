"""Which parts of a body are frozen: names of submodules and parameters, as PyTorch writes them."""

from __future__ import annotations

from typing import Any

from iblurry.components.lazy_torch import nn
from iblurry.errors import InputError, UnknownNameError


def check_freeze(names: Any) -> str:
    """`freeze` as it was given; InputError if it is not text."""
    if not isinstance(names, str):
        raise InputError(f"freeze={names!r} is not valid; give 'none', 'body' or names separated by commas.")
    return names


def find_frozen(body: nn.Module, names: str) -> tuple[list[nn.Module], list[nn.Parameter]]:
    """The submodules and parameters that these names mean.

    Parameters
    ----------
    body : nn.Module
        The body; UnknownNameError for a name that it does not have.
    names : str
        "none", "body", or names separated by commas, such as "layers.0,layers.1"; a name means all that is in it.
    """
    if check_freeze(names) == "none":
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
