"""An exported network of others: nothing in the file runs, whatever it was made to hold."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from iblurry.errors import DataError
from iblurry.learner.exported import KEY, load_exported
from iblurry.learner.learner import Learner

IMAGES = np.random.default_rng(1).integers(0, 256, (12, 1, 8, 8), dtype=np.uint8)
MODEL, CONSTANTS = "models/model.json", "data/constants/model_constants_config.json"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("honest") / "model.pt2"
    learner = Learner("er", image=(1, 8, 8), memory=20, network="mlp:width=8", classes=4)
    for at, image in enumerate(IMAGES):
        learner.observe(image, at % 3)
    learner.export(path)
    return path


class Plant:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def pickled(marker):
    content = io.BytesIO()
    torch.save(Plant(marker), content)
    return content.getvalue()


def touching(marker):
    return f"__import__('pathlib').Path({str(marker)!r}).touch()"


def changed(members, name, change):
    content = json.loads(members[name])
    change(content)
    members[name] = json.dumps(content).encode()


def first(config):
    return next(iter(config["config"].values()))


def graph(model):
    return model["graph_module"]["graph"]


def pickle_a_constant(members, marker):
    changed(members, CONSTANTS, lambda config: first(config).update(use_pickle=True))
    members["data/constants/tensor_0"] = pickled(marker)


def pickle_a_weight(members, marker):
    about = {"path_name": "weight_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    changed(members, "data/weights/model_weights_config.json", lambda config: config["config"].update(weight=about))
    members["data/weights/weight_0"] = pickled(marker)


def opaque_object(members, marker):
    about = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    changed(members, CONSTANTS, lambda config: config["config"].update(planted=about))
    members["data/constants/opaque_obj_0"] = pickle.dumps(Plant(marker))


def sample_inputs(members, marker):
    members["data/sample_inputs/model.pt"] = pickled(marker)


def expression(members, marker):
    def change(model):
        value = next(one for one in graph(model)["tensor_values"].values() if "as_expr" in one["sizes"][0])
        value["sizes"][0]["as_expr"]["expr_str"] = touching(marker) + " or Symbol('s77', integer=True)"

    changed(members, MODEL, change)


def guard(members, marker):
    changed(members, MODEL, lambda model: model.update(guards_code=[touching(marker) + " or True"]))


def name_of_the_input(members, marker):
    text = members[MODEL].decode()
    members[MODEL] = text.replace('"images"', json.dumps(f"images={touching(marker)}")).encode()


def call(target, *arguments):
    inputs = [{"name": "x", "arg": one, "kind": 1} for one in arguments]
    node = {"target": target, "inputs": inputs, "outputs": [{"as_none": True}], "metadata": {}, "name": "planted"}
    return lambda members, marker: changed(
        members,
        MODEL,
        lambda model: graph(model)["nodes"].insert(0, json.loads(json.dumps(node).replace("MARKER", str(marker)))),
    )


def legacy_weights(members, marker):
    members["data/weights/model.pt"] = members["data/constants/model.pt"] = pickled(marker)


def compiled(members, marker):
    members["data/aotinductor/model/planted.so"] = b"\x7fELF"


def outside(members, marker):
    changed(members, CONSTANTS, lambda config: first(config).update(path_name="../../../../etc/passwd"))


def nested(members, marker):
    members[MODEL] = b'{"graph_module":' + b"[" * 200_000 + b"]" * 200_000 + b"}"


def beyond_its_bytes(members, marker):
    changed(members, CONSTANTS, lambda config: first(config)["tensor_meta"]["sizes"][0].update(as_int=10**15))


def labels(members, marker):
    changed(members, f"extra/{KEY}", lambda about: about.update(labels=["one"]))


WAYS = {  # what is planted, and why the file is refused; None: it is loaded, as what was planted is never looked at
    pickle_a_constant: "is pickled",
    pickle_a_weight: "is pickled",
    opaque_object: "is pickled",
    sample_inputs: None,
    expression: None,
    guard: None,
    name_of_the_input: None,
    call("torch.os.system", {"as_string": "touch MARKER"}): "torch.os.system",
    call("torch.ops.aten.from_file.default", {"as_string": "MARKER"}, {"as_bool": True}, {"as_int": 9}): "from_file",
    call("torch.ops.aten.add.__class__", {"as_string": "MARKER"}): "aten.add",
    call("torch.ops.aten.__class__.mro"): "aten.__class__",
    call("_operator.methodcaller", {"as_string": "MARKER"}): "methodcaller",
    call("torch.ops.aten.neg.default", {"as_custom_obj": {"name": "x", "class_fqn": "y"}}): "unpack",
    legacy_weights: None,
    compiled: None,
    outside: "no item named",
    nested: "nested",
    beyond_its_bytes: "bounds",
    labels: "for 1 labels",
}


def plant(honest, path, way, marker, **options):
    with zipfile.ZipFile(honest) as archive:
        root = archive.namelist()[0].partition("/")[0]
        members = {name.removeprefix(f"{root}/"): archive.read(name) for name in archive.namelist()}
    way(members, marker)
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(f"{root}/{name}", content)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{list(WAYS).index(way)} {way.__name__}")
def test_nothing_in_the_file_runs(honest, tmp_path, way):
    marker, path = tmp_path / "marker", tmp_path / "model.pt2"
    plant(honest, path, way, marker)
    if WAYS[way] is None:
        assert torch.equal(load_exported(path).logits(IMAGES), load_exported(honest).logits(IMAGES))
    else:
        with pytest.raises(DataError, match=WAYS[way]) as refused:
            load_exported(path)
        assert str(refused.value).startswith(f"{path} cannot be used (")
        assert "\n" not in str(refused.value)
    assert not marker.exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_that_unpack_to_more_than_they_are(honest, tmp_path):
    path = tmp_path / "model.pt2"
    plant(honest, path, lambda members, marker: members.update(zeros=bytes(10**7)), None, compression=8)
    with pytest.raises(DataError, match="compressed"):
        load_exported(path)
    plant(honest, path, lambda members, marker: None, None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(archive.namelist()[0], b"{}")
    with pytest.raises(DataError, match="one name"):
        load_exported(path)
