"""What a checkpoint holds: a state comes back exactly, or is refused."""

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from iblurry.storage.checkpoint import save
from tests.experiment.states import held, latest, same, state


def test_a_state_comes_back_the_same(tmp_path: Path) -> None:
    path = save(tmp_path, state(), at=1200)
    loaded = latest(tmp_path)
    assert (loaded.at, loaded.path, loaded.skipped) == (1200, path, [])
    assert path.name == "checkpoint-000000001200.safetensors"
    assert same(loaded.state, state())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, -0.0, float("nan"), float("inf"), 1e-40]).to(torch.bfloat16),
        torch.tensor([0x7FC00001, 0x7F800002], dtype=torch.int32).view(torch.float32),
        torch.tensor([2**63 - 1, -(2**63)]),
        torch.tensor([0.1, -0.0, 5e-324], dtype=torch.float64),
        torch.tensor(0.5, dtype=torch.float16),
        torch.tensor(True),
        torch.empty(0),
        torch.empty(3, 0, 2, dtype=torch.int64),
        torch.arange(6, dtype=torch.int16).reshape(2, 3).T,
        torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(1)).to(memory_format=torch.channels_last),
        torch.tensor([1.0]).expand(4),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{tuple(tensor.shape)}",
)
def test_tensors_come_back_bit_for_bit(tmp_path: Path, tensor: torch.Tensor) -> None:
    save(tmp_path, {"it": tensor}, at=1)
    back = latest(tmp_path).state["it"]
    assert same(tensor, back)
    back.zero_()  # writable


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_arrays_come_back_with_their_type(tmp_path: Path, dtype: str) -> None:
    for array in (np.array([[1, 0, 1]], dtype=dtype), np.array(1, dtype=dtype), np.empty((0, 2), dtype=dtype)):
        array.flags.writeable = False
        save(tmp_path, {"it": array}, at=1)
        back = latest(tmp_path).state["it"]
        assert same(back, array.astype(array.dtype.newbyteorder("=")))
        back[...] = 0  # writable


def test_aliases_are_saved_apart_and_loaded_fresh(tmp_path: Path) -> None:
    shared = torch.ones(3)
    save(tmp_path, {"a": shared, "b": shared, "part": shared[1:]}, at=1)
    first, second = latest(tmp_path), latest(tmp_path)
    first.state["a"].fill_(5)
    assert first.state["b"].tolist() == [1, 1, 1]
    assert first.state["part"].tolist() == [1, 1]
    assert second.state["a"].tolist() == [1, 1, 1]


def test_a_module_and_its_optimizer_come_back(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    adam = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    adam.step()
    save(tmp_path, {"model": model.state_dict(), "adam": adam.state_dict()}, at=1)
    assert same(latest(tmp_path).state, {"model": dict(model.state_dict()), "adam": adam.state_dict()})


def test_equal_states_give_equal_bytes(tmp_path: Path) -> None:
    def reversed_dicts(value: Any) -> Any:
        if isinstance(value, dict):
            return OrderedDict((key, reversed_dicts(value[key])) for key in reversed(list(value)))
        return value.clone() if isinstance(value, torch.Tensor) else value

    for name in ("one", "two", "three", "four"):
        (tmp_path / name).mkdir()
    one = save(tmp_path / "one", state(), at=3).read_bytes()
    two = save(tmp_path / "two", reversed_dicts(state()), at=3).read_bytes()
    strided = state() | {"memory": [state()["memory"][0].T.contiguous().T, np.arange(6)[::2] * 0.05]}
    assert one == two == save(tmp_path / "three", strided, at=3).read_bytes()
    assert one != save(tmp_path / "four", state(1), at=3).read_bytes()


def test_the_file_is_plain_safetensors_with_one_metadata_key(tmp_path: Path) -> None:
    path = save(tmp_path, state(), at=3)
    with safe_open(path, framework="pt") as file:
        assert list(file.metadata()) == ["iblurry"]
        about = json.loads(file.metadata()["iblurry"])
        assert sorted(about) == ["at", "digest", "format", "tree"]
        assert len(about["digest"]) == 64
        assert " ".join(sorted(file.keys())) == (
            "memory/0 memory/1 network/also~1head network/head.weight network/steps "
            "optimizer/state/0/exp_avg optimizer/state/10/exp_avg"
        )
        assert same(file.get_tensor("network/head.weight"), state()["network"]["head.weight"])


def test_paths_that_look_alike_stay_apart(tmp_path: Path) -> None:
    confusing = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}, "a~1b": torch.ones(1) * 2, "": torch.ones(1) * 3}
    save(tmp_path, confusing, at=1)
    assert same(latest(tmp_path).state, confusing)


@pytest.mark.parametrize(
    "value", [{1, 2}, np.int64(3), np.float64(0.5), b"x", {"k": {1: 0, "1": 0}}, {(1, 2): 0}, np.array(["a"]), 1j]
)
def test_what_cannot_be_kept_exactly_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(TypeError, match="state/part"):
        save(tmp_path, {"part": value}, at=1)
    with pytest.raises(TypeError, match="__metadata__"):
        save(tmp_path, {"__metadata__": torch.ones(1)}, at=1)
    assert held(tmp_path) == []
