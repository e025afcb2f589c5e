"""Published split sets on a small scale: read by class name and number, written back, refused when they cannot be."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.errors import DataError, InputError
from iblurry.streams import published
from iblurry.streams.order import Order, i_blurry

HERE = Path(__file__).parent / "published"
TASK0, TASK1 = (HERE / f"toy_split2_n50_m25_rand7_task{t}.json" for t in (0, 1))


def labelled(labels):
    return LabelledImages(np.zeros((len(labels), 1, 1, 1), dtype=np.uint8), np.asarray(labels, dtype=np.int64))


def dataset(name, classes, train, test):
    return Dataset(name, tuple(classes), labelled(train), labelled(test), mean=(0.5,), std=(0.5,))


@pytest.fixture
def toy():
    """The n-th sample of class c, both from 0, has the index 4n + c."""
    return dataset("toy", ("ant", "bee", "cat", "dog"), [0, 1, 2, 3] * 4, [0, 1, 2, 3] * 2)


TOY_ORDER = Order(
    (
        np.array([4 * 2 + 3, 4 * 1 + 2, 4 * 3 + 2, 4 * 0 + 3, 4 * 3 + 1, 4 * 0 + 2, 4 * 3 + 3, 4 * 2 + 2]),
        np.array([4 * 0 + 0, 4 * 1 + 1, 4 * 3 + 0, 4 * 1 + 3, 4 * 1 + 0, 4 * 0 + 1, 4 * 2 + 1, 4 * 2 + 0]),
    ),
    classes=(2, 0, 3, 1),  # cat, ant, dog, bee
    disjoint=2,
)


def test_both_path_fields_are_read(toy, tmp_path):
    assert published.read(HERE, toy, tasks=2, n=50, m=25, seed=7) == TOY_ORDER
    assert published.read_files([TASK0, TASK1], toy) == TOY_ORDER
    shutil.copytree(HERE, tmp_path / "toy")
    assert published.read(tmp_path, toy, tasks=2, n=50, m=25, seed=7) == TOY_ORDER  # in a folder of the data set's name
    assert "filepath" in TASK0.read_text()
    assert "file_name" in TASK1.read_text()


def test_original_names_count_from_zero():
    data = dataset("any", ("n01", "n02"), [0, 0, 1, 1], [0])
    order = published.read_files([HERE / "wnid_split1_n0_m10_rand0_task0.json"], data)
    assert order.indices.tolist() == [3, 0, 2, 1]
    assert order.classes == (1, 0)
    assert order.disjoint == 0  # all lie in one task, but N = 0


@pytest.mark.parametrize(
    "n, m, name",
    [
        (50, 10, "n50_m10"),
        (100, 10, "n100_m0"),
        (50.0, 0, "n100_m0"),
        (12.5, 0.5, "n12.5_m0.5"),
        (1e-5, 100.0, "n0.00001_m100"),
    ],
)
def test_names_of_sets(n, m, name):
    assert published.set_name("own", tasks=4, n=n, m=m, seed=0) == f"own_split4_{name}_rand0"


@pytest.mark.parametrize("n, m", [(100, 10), (100, 0), (50, 0), (0, 0)])
def test_no_blurry_classes_means_the_disjoint_files(toy, tmp_path, n, m):
    order = i_blurry(toy.train.labels, tasks=2, disjoint=n, blur=m)
    published.export(order, toy, tmp_path, seed=1, n=n, m=m)
    assert {p.name for p in tmp_path.iterdir()} == {
        "toy_split2_n100_m0_rand1_task0.json", "toy_split2_n100_m0_rand1_task1.json", "toy_val.json",
    }  # fmt: skip
    assert published.read(tmp_path, toy, tasks=2, n=n, m=m, seed=1) == order


def change(tmp_path, edit):
    """A copy of the toy set with the second file changed."""
    records = json.loads(TASK1.read_text())
    edit(records)
    path = tmp_path / TASK1.name
    path.write_text(json.dumps(records))
    return [TASK0, path]


@pytest.mark.parametrize(
    "edit, record, value",
    [
        (lambda r: r[2].update(klass="eel"), 2, "'eel'"),
        (lambda r: r[2].pop("klass"), 2, "None"),
        (lambda r: r[3].update(file_name="train/dog/0005.png"), 3, "train/dog/0005.png"),
        (lambda r: r[3].update(file_name="train/dog/0000.png"), 3, "train/dog/0000.png"),
        (lambda r: r[0].update(file_name="train/ant/0002.png"), 4, "train/ant/0002.png"),  # twice in one file
        (lambda r: r[3].update(file_name="train/dog/0001.png"), 3, "train/dog/0001.png"),  # in the other file, too
        (lambda r: r[1].update(file_name="train/cat/0002.png"), 1, "'train/cat/0002.png'"),
        (lambda r: r[1].update(file_name="test/bee/0002.png"), 1, "'test/bee/0002.png'"),
        (lambda r: r[1].update(file_name="train/bee/x2.png"), 1, "'train/bee/x2.png'"),
        (lambda r: r[1].update(file_name="train/bee/bee_2.png"), 1, "'train/bee/bee_2.png'"),
        (lambda r: r[1].pop("file_name"), 1, "None"),
        (lambda r: r[5].update(label=0), 5, "'bee' is 0"),
        (lambda r: r[5].pop("label"), 5, "'bee' is None"),
        (lambda r: r.insert(0, "ant"), 0, ""),
    ],
)
def test_records_that_cannot_be(toy, tmp_path, edit, record, value):
    with pytest.raises(DataError, match=rf"task1.json, record {record}: .*{value}"):
        published.read_files(change(tmp_path, edit), toy)


@pytest.mark.parametrize(
    "edit", [lambda r: [one.update(label=4) for one in r if one["klass"] == "ant"], lambda r: r.clear()]
)
def test_sets_that_cannot_be(toy, tmp_path, edit):
    with pytest.raises(DataError, match=r"\[0, 2, 3, 4\]|task1.json"):
        published.read_files(change(tmp_path, edit), toy)


@pytest.mark.parametrize("text", ["[{", "", "{}", "3", "\udcff"])
def test_files_that_are_no_lists(toy, tmp_path, text):
    path = tmp_path / TASK1.name
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=r"task1.json"):
        published.read_files([TASK0, path], toy)


def test_files_that_are_not_there(toy, tmp_path):
    shutil.copy(TASK0, tmp_path)
    for n, missing in ((50, "toy_split2_n50_m25_rand7_task1.json"), (0, "toy_split2_n0_m25_rand7_task0.json")):
        with pytest.raises(DataError, match=missing):
            published.read(tmp_path, toy, tasks=2, n=n, m=25, seed=7)
    with pytest.raises(DataError, match=r"\[1, 0\]"):
        published.read_files([TASK1, TASK0], toy)
    with pytest.raises(InputError):
        published.read_files([], toy)
    with pytest.raises(InputError, match="tasks=0"):
        published.read(tmp_path, toy, tasks=0, n=50, m=25, seed=7)


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=8),
    seed=st.integers(0, 99),
    n=st.one_of(st.integers(0, 100), st.integers(0, 10_000).map(lambda hundredths: hundredths / 100)),
    m=st.integers(0, 100),
    data=st.data(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_back(tmp_path, sizes, seed, n, m, data):
    name = data.draw(st.sampled_from(["own", "tinyimagenet"]))
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    own = dataset(name, [f"class {c}/{c}" for c in range(len(sizes))], labels, [0])
    tasks = data.draw(st.integers(1, len(sizes)))
    order = i_blurry(labels, tasks=tasks, disjoint=n, blur=m, seed=seed, mode="uneven")
    written = published.export(order, own, tmp_path, seed=seed, n=n, m=m)
    assert len(written) == tasks + 1
    assert published.read(tmp_path, own, tasks=tasks, n=n, m=m, seed=seed) == order


@pytest.mark.parametrize("classes, n", [(10, 75), (11, 95), (14, 75), (450, 23)])
def test_an_order_with_classes_dropped_is_named_by_what_is_left(tmp_path, classes, n):
    labels = np.repeat(np.arange(classes), 20)
    own = dataset("own", [str(c) for c in range(classes)], labels, [0])
    order = i_blurry(labels, tasks=5, disjoint=n, blur=50, mode="compatible")
    with pytest.raises(InputError, match=f"n={n}"):
        published.export(order, own, tmp_path, seed=1, n=n, m=50)
    fitting = published.fitting_n(order)
    published.export(order, own, tmp_path, seed=1, n=fitting, m=50)
    assert published.read(tmp_path, own, tasks=5, n=fitting, m=50, seed=1) == order


def test_files_look_like_the_published_ones(toy, tmp_path):
    published.export(TOY_ORDER, toy, tmp_path / "new", seed=7, n=50, m=25)
    for file, original in ((f.name, json.loads(f.read_text())) for f in (TASK0, TASK1)):
        renamed = [{"file_name" if key == "filepath" else key: v for key, v in one.items()} for one in original]
        assert json.loads((tmp_path / "new" / file).read_text()) == renamed
    test = json.loads((tmp_path / "new" / "toy_val.json").read_text())
    assert [one["file_name"] for one in test] == [f"test/{k}/{i:04d}.png" for i in (1, 2) for k in toy.classes]


def test_tiny_images_keep_their_original_names_but_the_test_list_counts(tmp_path):
    tiny = dataset("tinyimagenet", ("n01", "n02"), [0, 1, 0], [1, 1, 0])
    order = Order((np.array([2, 0]), np.array([1])), (0, 1), 2)
    published.export(order, tiny, tmp_path / "not" / "there", seed=1, n=100, m=0)
    names = {path.name: [one["file_name"] for one in json.loads(path.read_text())] for path in tmp_path.rglob("*.json")}
    assert names == {
        "tinyimagenet_split2_n100_m0_rand1_task0.json": ["train/n01/n01_1.JPEG", "train/n01/n01_0.JPEG"],
        "tinyimagenet_split2_n100_m0_rand1_task1.json": ["train/n02/n02_0.JPEG"],
        "tinyimagenet_val.json": ["test/n02/0001.png", "test/n02/0002.png", "test/n01/0001.png"],
    }
    assert published.read(tmp_path / "not" / "there", tiny, tasks=2, n=100, m=0, seed=1) == order


def test_the_one_set_published_unshuffled_is_shuffled(tmp_path):
    own = dataset("cifar100", [str(c) for c in range(10)], np.repeat(np.arange(10), 20), [0])
    listing = Order(tuple(np.arange(200).reshape(5, 40)), tuple(range(10)), 10)
    published.export(listing, own, tmp_path, seed=1, n=100, m=0)
    order = published.read(tmp_path, own, tasks=5, n=100, m=0, seed=1)
    assert [sorted(task.tolist()) for task in order.tasks] == np.arange(200).reshape(5, 40).tolist()
    for task in order.tasks:
        assert (np.diff(own.train.labels[task]) != 0).sum() > 8
    assert order == published.read(tmp_path, own, tasks=5, n=100, m=0, seed=1)
    published.export(listing, own, tmp_path, seed=2, n=100, m=0)
    assert published.read(tmp_path, own, tasks=5, n=100, m=0, seed=2) == listing
    published.export(order, own, tmp_path, seed=1, n=100, m=0)
    assert published.read(tmp_path, own, tasks=5, n=100, m=0, seed=1) == order
