"""Images and histograms that callbacks logged are on the page of a run."""

import base64

import numpy as np
import pytest

from tests.report.pages import data, run
from thespis.report.report import report
from thespis.report.source import Source
from thespis.runs import pictures
from thespis.runs.metrics import MetricsLog, histogram_value

PNG = "data:image/png;base64,"


def log_of(folder, members=1, **config):
    made = run(folder, range(members), callbacks=["mine:Callback"], **config)
    columns = (made / "metrics.csv").read_text().splitlines()[0].split(",")[2:]
    return made, MetricsLog(made, columns, members)


def show_image(log, name, step, colour=200, member=0):
    log.show(step, member, lambda: pictures.image_value(name, np.full((4, 6, 3), colour, "u1")))


def show_histogram(log, name, step, values, member=0):
    log.show(step, member, lambda: histogram_value(name, *pictures.histogram(name, values)))


def test_the_newest_image_of_every_name_is_on_the_page(tmp_path):
    folder, log = log_of(tmp_path / "run", members=2)
    for step in (100, 2000):
        show_image(log, "policy/map", step, colour=step // 10)
    show_image(log, "policy/map", 100, member=1)
    items = data(report([folder]))["pictures"]
    names = ["policy/map, step 2,000, seed 0", "policy/map, step 100, seed 1"]
    assert [item["name"] for item in items] == names
    newest = pictures.image_value("", np.full((4, 6, 3), 200, "u1")).image.encoded_image_string
    assert items[0]["source"] == PNG + base64.b64encode(newest).decode()


def test_histograms_of_callbacks_are_on_the_page_whatever_their_ranges(tmp_path):
    folder, log = log_of(tmp_path / "run", members=2)
    show_histogram(log, "mine/torque", 1000, [-1.0, 0.0, 0.5, 1.0])
    show_histogram(log, "mine/torque", 2000, [3.0] * 8)
    show_histogram(log, "mine/torque", 2000, [3.0, -2.0], member=1)
    found = Source(folder).histograms["mine/torque"]
    assert found.steps.tolist() == [1000, 2000]
    np.testing.assert_allclose(found.counts.sum(1), [4, 10])
    assert found.edges[0] <= -2.0
    assert found.edges[-1] >= 3.0
    middle = np.convolve(found.edges, [0.5, 0.5], "valid")
    mean = found.counts @ middle / found.counts.sum(1)
    np.testing.assert_allclose(mean, [0.125, 2.5], atol=0.1)
    (chart,) = data(report([folder]))["histograms"]
    assert chart["title"] == "torque"


def test_runs_of_a_group_share_a_histogram_though_their_ranges_differ(tmp_path):
    folders = []
    for seed, width in enumerate((1.0, 4.0)):
        folder, log = log_of(tmp_path / f"run_{seed}")
        (folder / "config.json").write_text(
            (folder / "config.json").read_text().replace('"seeds": [0]', f'"seeds": [{seed}]')
        )
        show_histogram(log, "mine/x", 1000, np.linspace(-width, width, 50))
        folders.append(folder)
    page = data(report(folders, tmp_path / "page.html"))
    (chart,) = page["histograms"]
    assert chart["runs"] == [0, 1]
    assert chart["histogram"]["edges"][-1] >= 4.0


@pytest.mark.parametrize("damage", ["cut", "zeros", "not-png", "edges", "link"])
def test_damaged_events_are_left_out(tmp_path, damage):
    folder, log = log_of(tmp_path / "run")
    show_image(log, "mine/first", 100)
    (file,) = (folder / "tensorboard").iterdir()
    whole = file.read_bytes()
    names = ["mine/first, step 100"]
    if damage == "cut":
        show_image(log, "mine/second", 100)
        file.write_bytes(file.read_bytes()[:-30])
    if damage == "zeros":
        file.write_bytes(whole + bytes(400))
    if damage == "not-png":
        value = pictures.image_value("mine/script", np.zeros((2, 2, 3), "u1"))
        value.image.encoded_image_string = b"<svg onload='alert(1)'/>"
        log.show(100, 0, lambda: value)
    if damage == "edges":
        log.show(100, 0, lambda: histogram_value("mine/x", np.array([1, 2]), (0.0, 2.0, 1.0)))
        log.show(100, 0, lambda: histogram_value("mine/y", np.array([1, -2]), (0.0, 1.0, 2.0)))
        log.show(100, 0, lambda: histogram_value("mine/z", np.array([1]), (-1e307, 1e307)))
    if damage == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
        names = []
    page = data(report([folder]))
    assert [item["name"] for item in page["pictures"]] == names
    assert page["histograms"] == []


def test_a_run_without_callbacks_is_not_searched(tmp_path):
    folder, log = log_of(tmp_path / "run")
    show_image(log, "mine/first", 100)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('["mine:Callback"]', "[]"))
    assert data(report([folder]))["pictures"] == []
