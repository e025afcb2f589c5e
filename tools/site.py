"""What the site needs beyond its pages: MathJax, signatures of parts and recipes, links to the repository.

MkDocs calls the `on_` functions (`hooks` in mkdocs.yml), mkdocstrings loads `Signatures`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
MATHJAX = "3.2.2"
SCRIPT = "tex-svg.js"  # one file, fonts included
NOTEBOOKS = "docs/notebooks"


def on_files(files: Files, *, config: Any) -> Files:
    """MathJax becomes a file of the site."""
    files.append(File.generated(config, f"assets/{SCRIPT}", abs_src_path=str(mathjax())))
    return files


def mathjax(folder: Path = ROOT / "build" / f"mathjax-{MATHJAX}") -> Path:
    """The script, from the npm package; fetched once, then kept in build/."""
    script = folder / SCRIPT
    if not script.exists():
        if shutil.which("npm") is None:
            raise PluginError(f"Formulas need MathJax: install npm, which fetches it, or put {SCRIPT} into {folder}.")
        with tempfile.TemporaryDirectory() as place:
            command = ["npm", "pack", "--silent", "--pack-destination", place, f"mathjax@{MATHJAX}"]
            packed = subprocess.run(command, capture_output=True, text=True, check=False)
            if packed.returncode:
                raise PluginError(f"npm could not fetch MathJax {MATHJAX}: {packed.stderr.strip()}")
            (archive,) = Path(place).glob("*.tgz")
            with tarfile.open(archive) as tar:
                tar.extract(f"package/es5/{SCRIPT}", place, filter="data")
            folder.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(place, "package", "es5", SCRIPT), script)
    return script


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """A notebook's link to its file is followed by one that runs it, where the repository's address is known."""
    address = config.repo_url
    if page.file.src_uri != "examples.md" or not address:
        return markdown
    run = f"https://mybinder.org/v2/git/{quote(address, safe='')}/HEAD?labpath={NOTEBOOKS}"
    return re.sub(r"(\[notebook\]\(notebooks/(\w+\.ipynb)\))", rf"\1, [run it on Binder]({run}/\2)", markdown)


class Signatures(griffe.Extension):
    """Signatures of constructors and recipes that a base class or decorator makes, from the imported objects."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Once the package's source was read."""
        self._visit(pkg)

    def _visit(self, module: griffe.Module) -> None:
        for name, member in list(module.members.items()):
            if member.is_alias or name.startswith("_"):
                continue
            if member.is_module:
                self._visit(member)
            elif module.path.startswith(("iblurry.parts", "iblurry.streams", "iblurry.augment", "iblurry.engine.opt")):
                if member.is_class and "__init__" not in member.members:
                    init = griffe.Function("__init__", lineno=member.lineno, endlineno=member.lineno)
                    init.parameters = _parameters(module.path, name)
                    member.set_member("__init__", init)
            elif module.path.startswith("iblurry.methods.") and member.is_function and member.decorators:
                member.parameters = _parameters(module.path, name)


def _parameters(module: str, name: str) -> griffe.Parameters:
    found = inspect.signature(getattr(importlib.import_module(module), name)).parameters.values()
    return griffe.Parameters(
        *(
            griffe.Parameter(
                one.name,
                annotation=_written(one.annotation),
                kind=griffe.ParameterKind(one.kind.description),
                default=None if one.default is one.empty else repr(one.default),
            )
            for one in found
        )
    )


def _written(annotation: Any) -> str | None:
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return annotation if isinstance(annotation, str) else None
    return inspect.formatannotation(annotation)
