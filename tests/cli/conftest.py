"""The program called in this process: what it prints, where, and how it ends."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest

from iblurry.cli.main import main

DATA = "shapes:classes=4,train=20,test=10,size=8,channels=1"
QUICK = [  # a run of a moment
    *("--dataset", DATA, "--tasks", "2", "--memory", "20", "--network", "mlp:width=16"),
    *("--samples", "40", "--query-every", "10", "--jobs", "1"),
]
RUN = ["run", "er", *QUICK, "--seeds", "1", "--save-samples", "10"]


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder, a terminal of 80 columns, no data home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("IBLURRY_DATA", str(tmp_path / "no-data"))
    return tmp_path


@pytest.fixture
def call(here, capsys):
    def call(*arguments) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return Said(ended.value.code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def stopped_runs(tmp_path_factory):
    """The runs of a program that was stopped by a full disk at sample 30 of 40, checkpoints at 20 and 30."""
    from iblurry.experiment.journal import Journal

    place, append = tmp_path_factory.mktemp("stopped"), Journal.append

    def stop(journal, record):
        if getattr(record, "at", 0) >= 40:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(journal, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(Journal, "append", stop)
        with pytest.raises(SystemExit) as ended:
            main(RUN)
    assert ended.value.code == 2
    return place / "runs"


@pytest.fixture
def begun(stopped_runs, here):
    """The folder of a run that was stopped."""
    (folder,) = shutil.copytree(stopped_runs, here / "runs").iterdir()
    assert [path.name[-14:-12] for path in sorted(folder.glob("*.safetensors"))] == ["20", "30"]
    return folder


@pytest.fixture(scope="session")
def program():
    """The command that starts the program in a process of its own."""
    return [sys.executable, "-c", "from iblurry.cli.main import main; main()"]


@pytest.fixture
def apart(here):
    """Calls one after the other in a process of their own, where they leave no trace; what each says."""
    code = (
        "import sys\n"
        "from iblurry.cli.main import main\n"
        "for command in sys.argv[1:]:\n"
        "    try:\n"
        "        main(command.split())\n"
        "    except SystemExit as end:\n"
        "        print(f'\\0{end.code}', end='\\0')\n"
    )

    def apart(*commands) -> list[Said]:
        done = subprocess.run([sys.executable, "-c", code, *commands], capture_output=True, text=True, check=True)
        words = done.stdout.split("\0")
        return [Said(int(end), out, done.stderr) for out, end in zip(words[:-1:2], words[1::2], strict=True)]

    return apart


@pytest.fixture
def in_process(monkeypatch):
    """Runs are in this process, not in workers, which take seconds to start and are tried elsewhere."""
    from iblurry.launch import launch
    from iblurry.launch.pack import Pack

    def run_queue(queue, config, workers, stop):
        Pack(config, queue, stop).run()

    monkeypatch.setattr(launch, "_run_queue", run_queue)


@pytest.fixture
def quick(call):
    """`iblurry run` on a small stream; must succeed."""

    def quick(*arguments) -> Said:
        said = call("run", *QUICK, *arguments)
        assert said.code == 0, said.err
        return said

    return quick


@pytest.fixture(scope="module")
def toy_service():
    """Serves a live service that learns nothing, of grey pictures."""
    from tests.live.serving import Serving
    from tests.live.toy import Toy

    with Serving(Toy((1, 8, 8))) as serving:
        yield serving


@pytest.fixture
def service(toy_service, monkeypatch):
    """The same at the usual address; it forgot all that came before."""
    monkeypatch.delenv("IBLURRY_TOKEN", raising=False)
    monkeypatch.setenv("IBLURRY_URL", toy_service.url)
    return toy_service.reset()


@pytest.fixture
def toy(service):
    return service.service


@pytest.fixture
def pets(here):
    """Two classes of pictures, and what does not belong there."""
    from PIL import Image

    for place in ("cat/1.png", "cat/more/2.PNG", "dog/3.jpg", "dog/4.bmp"):
        path = here / "pets" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7), (60 * int(path.stem), 0, 0)).save(path)
    (here / "pets" / "cat" / "notes.txt").write_text("a cat")
    (here / "pets" / ".thumbnails").mkdir()
    return here / "pets"


@pytest.fixture
def refused(call, here):
    """A call that must be refused: one line on the error stream, exit code 2, nothing else said, nothing written."""

    def refused(*arguments) -> str:
        before = contents(here)
        code, out, err = call(*arguments)
        assert code == 2, err
        assert out == ""
        assert err.startswith("iblurry: ")
        assert err.endswith(".\n")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert contents(here) == before
        return err

    return refused


def contents(folder):
    """Every file, but what Python compiles beside a module."""
    paths = (path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts)
    return {path: path.read_bytes() if path.is_file() else None for path in paths}
