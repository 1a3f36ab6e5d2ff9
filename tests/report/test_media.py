import os

import pytest
from PIL import Image

from tests.report.pages import data, run
from thespis.report import media
from thespis.report.report import report
from thespis.report.source import Source


def test_videos_and_pictures_are_in_the_page_while_there_is_room(tmp_path):
    folder = run(tmp_path / "run")
    for name in ("videos/one.mp4", "videos/two.mp4"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(bytes(2**20))
    (folder / "plots").mkdir()
    for name in ("learning_curve", "skills_and more"):
        Image.new("RGB", (4, 4)).save(folder / "plots" / f"{name}.png")
    told = data(report([folder], tmp_path / "page.html", video_mb=1.5))
    one, two = told["videos"]
    assert one["source"].startswith("data:video/mp4;base64,AAAA")
    assert (two["inside"], two["source"]) == (False, "run/videos/two.mp4")
    (picture,) = told["pictures"]  # the page draws the learning curve itself
    assert picture["name"] == "skills and more"
    assert picture["source"].startswith("data:image/png;base64,")
    assert (tmp_path / "page.html").stat().st_size < 1.5 * 2**20


@pytest.mark.posix
def test_pictures_and_videos_that_lead_elsewhere_are_left_out(tmp_path):
    folder = run(tmp_path / "run")
    (tmp_path / "secrets").mkdir()
    secret = tmp_path / "secrets" / "secret.png"
    secret.write_bytes(b"a secret")
    (folder / "plots").mkdir()
    (folder / "plots" / "x.png").symlink_to(secret)
    (folder / "plots" / "zero.png").symlink_to("/dev/zero")
    (folder / "plots" / "folder.png").mkdir()
    os.mkfifo(folder / "plots" / "pipe.png")
    (folder / "plots" / "theirs").symlink_to(tmp_path / "secrets")
    (folder / "videos").symlink_to(tmp_path / "secrets")
    (tmp_path / "secrets" / "video.mp4").write_bytes(b"a secret")
    Image.new("RGB", (4, 4)).save(folder / "plots" / "fine.png")
    told = data(report([folder]))
    assert [picture["name"] for picture in told["pictures"]] == ["fine"]
    assert told["videos"] == []


def test_a_page_that_lies_nowhere_names_what_it_has_no_room_for(tmp_path):
    folder = run(tmp_path / "run")
    (folder / "videos").mkdir()
    (folder / "videos" / "one.mp4").write_bytes(bytes(2**20))
    (item,) = media.videos([Source(folder)], 0, here=None)
    assert (item["inside"], item["source"]) == (False, None)
    assert item["file"] == str(folder / "videos" / "one.mp4")


def test_drawings_that_may_contain_scripts_are_never_linked(tmp_path, monkeypatch):
    monkeypatch.setattr(media, "PICTURES", 0)
    folder = run(tmp_path / "run")
    (folder / "plots").mkdir()
    for name in ("one.SVG", "two.png"):
        (folder / "plots" / name).write_bytes(b"<svg/>")
    one, two = media.pictures([Source(folder)], here=tmp_path)
    assert (one["source"], one["file"]) == (None, str(folder / "plots" / "one.SVG"))
    assert two["source"] == "run/plots/two.png"
