"""The report in a real browser. `make test-browser` installs one where it may."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.browser.driver import Browser, missing
from tests.report.pages import run
from thespis.report.report import report, watch
from thespis.runs.process import alone

pytestmark = pytest.mark.slow
BIG = "#chart-returns-0 .plot"


@pytest.fixture(scope="module")
def browser():
    absent = missing()
    assert not absent, absent
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _afresh(browser):
    browser.size(1280)
    browser.dark(False)


def ticks(browser, selector, axis="x"):
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    return browser.run(script, f"{selector} .tick-{axis}")


def wider(browser):
    """By how much the page is wider than the window."""
    return browser.run("return document.documentElement.scrollWidth - innerWidth")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Five seeds, with a picture and a video."""
    folder = run(tmp_path_factory.mktemp("runs") / "sac" / "jax-pendulum_1", range(5), 20)
    for name in ("plots/repeats.png", "videos/video.gif"):
        (folder / name).parent.mkdir()
        Image.new("RGB", (64, 48), "teal").save(folder / name)
    return report([folder])


def test_the_page_opens_without_a_complaint(browser, page):
    browser.open(page)
    assert browser.errors() == []
    assert browser.run("return document.title") == "SAC on jax:pendulum"
    assert browser.run("return document.querySelectorAll('#curves path.band').length") == 1
    assert browser.run("return document.querySelectorAll('#curves path.faint').length") == 5
    compiled = "return [...document.querySelectorAll('#compiled td')].map(e => e.textContent)"
    assert browser.run(compiled) == ["epoch", "2.2 s", "init", "0.3 s"]
    loaded = "return [...document.images].every(image => image.naturalWidth > 0)"
    browser.run("window.scrollTo(0, document.body.scrollHeight / 3)")
    browser.wait(lambda: browser.run(loaded))
    asked = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert all(name.startswith("data:") for name in browser.run(asked))


def test_hovering_tells_the_value_under_the_mouse(browser, page):
    browser.open(page)
    browser.mouse(("move", *browser.place(BIG, 0.99, 0.5)))
    tip = browser.run("return document.querySelector('#curves .tip:not([hidden])').textContent")
    assert tip.startswith("20,000 steps")
    told = json.loads(browser.run("return document.getElementById('data').textContent"))
    assert f"{told['runs'][0]['last']:.1f}".replace("-", "−") in tip
    browser.mouse(("move", 5, 5))
    assert browser.run("return document.querySelector('#curves .tip:not([hidden])')") is None


def test_dragging_zooms_every_chart_and_a_double_click_shows_all(browser, page):
    browser.open(page)
    before = ticks(browser, BIG), ticks(browser, BIG, "y")
    start, end = browser.place(BIG, 0.5), browser.place(BIG, 0.75)
    browser.mouse(("move", *start), ("down",), ("move", *end), ("up",))
    zoomed = ticks(browser, BIG)
    assert zoomed != before[0]
    assert zoomed[0] != "0"
    assert ticks(browser, BIG, "y") != before[1]  # the values in sight fill the chart
    small = "[id='chart-train/critic_loss']"
    browser.place(small)
    browser.wait(lambda: ticks(browser, small)[:1] not in ([], ["0"]))
    where = browser.place(BIG)
    browser.mouse(("move", *where), *[("down",), ("up",)] * 2)
    assert (ticks(browser, BIG), ticks(browser, BIG, "y")) == before


def test_a_page_that_loads_again_keeps_its_zoom(browser, page):
    browser.open(page)
    start, end = browser.place(BIG, 0.2), browser.place(BIG, 0.6)
    browser.mouse(("move", *start), ("down",), ("move", *end), ("up",))
    zoomed = ticks(browser, BIG)
    browser.run("location.reload()")
    browser.wait(lambda: ticks(browser, BIG) == zoomed)
    browser.run("document.getElementById('reset').click()")
    assert ticks(browser, BIG)[0] == "0"


def test_charts_are_read_by_keys_alone(browser, page):
    browser.open(page)
    browser.run("document.querySelector(arguments[0]).focus()", BIG)
    right, escape = "\ue014", "\ue00c"
    browser.keys(right, right)
    tip = "return document.querySelector('#curves .tip').textContent"
    assert browser.run(tip).startswith("2,000 steps")
    browser.keys("+")
    assert ticks(browser, BIG)[0] != "0"
    browser.keys(escape)
    assert ticks(browser, BIG)[0] == "0"


def test_curves_can_be_seen_over_time_and_hidden(browser, page):
    browser.open(page)
    browser.run("document.querySelector('[data-axis=time]').click()")
    assert "seconds" in browser.run("return document.querySelector('#curves svg').textContent")
    browser.run("document.querySelector('[data-axis=steps]').click()")
    browser.run("document.querySelector('#curves .legend button').click()")
    assert browser.run("return document.querySelectorAll('#curves path.bold').length") == 0
    browser.run("document.querySelector('#curves .legend button').click()")
    assert browser.run("return document.querySelectorAll('#curves path.bold').length") == 1


def ground(browser):
    return browser.run("return getComputedStyle(document.body).backgroundColor")


def test_colours_follow_the_system_and_the_switch(browser, page):
    brightness = lambda: np.mean([int(x) for x in ground(browser)[4:-1].split(",")])
    browser.open(page)
    assert brightness() > 200
    browser.dark(True)
    assert brightness() < 60
    browser.run("document.getElementById('theme').click()")
    assert brightness() > 200
    browser.run("location.reload()")
    browser.wait(lambda: brightness() > 200)  # it is remembered
    browser.run("localStorage.clear()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser, page, scheme):
    """A contrast of 4.5, as WCAG asks for."""
    browser.dark(scheme == "dark")
    browser.open(page)
    script = """const style = getComputedStyle(document.documentElement);
        const probe = document.body.appendChild(document.createElement("i"));
        return arguments[0].map(name => {
          probe.style.color = style.getPropertyValue(name);
          return getComputedStyle(probe).color; })"""
    names = ["--paper", "--sheet", "--ink", "--soft", "--accent", "--good", "--bad", "--warn"]
    colours = [[int(x) for x in c[4:-1].split(",")] for c in browser.run(script, names)]

    def light(colour):
        c = np.array(colour) / 255
        c = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        return c @ [0.2126, 0.7152, 0.0722]

    for back in colours[:2]:
        for front in colours[2:]:
            low, high = sorted([light(back), light(front)])
            assert (high + 0.05) / (low + 0.05) >= 4.5


@pytest.mark.parametrize("kind", ["seeds", "population", "comparison", "nothing"])
def test_nothing_is_wider_than_a_phone(browser, tmp_path, kind):
    long = tmp_path / ("a" * 60)
    folders = [run(long, seeds=range(3), evaluations=0 if kind == "nothing" else 9)]
    if kind == "population":
        folders = [run(tmp_path / "b", seeds=range(8), tuner="pbt", evaluations=9)]
    if kind == "comparison":
        folders += [run(tmp_path / name, algo=name) for name in ("td3", "taac", "discrete-sac")]
    file = report(folders, tmp_path / "page.html")
    browser.size(375, 812, phone=True)
    browser.open(file)
    assert wider(browser) <= 0
    assert browser.errors() == []


def test_the_family_tree_tells_who_a_member_copied(browser, tmp_path):
    file = report([run(tmp_path / "run", seeds=range(8), tuner="pbt", evaluations=12)])
    browser.open(file)
    assert browser.errors() == []
    tree = json.loads(browser.run("return document.getElementById('data').textContent"))
    step, parent, member = tree["population"]["tree"]["tree"]["copies"][4]
    box = "#chart-family-tree .plot"
    place = """const chart = document.querySelector(arguments[0]).chart;
        const height = chart.plot.clientHeight;
        return [chart.x(arguments[1]) / chart.width, chart.row(arguments[2]) / height]"""
    browser.place(box)
    browser.wait(lambda: browser.run(place, box, 0, 0))
    x, y = browser.run(place, box, step + 300, member)
    browser.mouse(("move", *browser.place(box, x, y)))
    tip = browser.run("return document.querySelector('#chart-family-tree .tip').textContent")
    assert tip.startswith(f"member {member} ")
    assert f"a copy of member {parent}" in tip


def test_sixteen_members_and_a_thousand_evaluations_open_in_two_seconds(browser, tmp_path):
    more = [f"metric_{i}" for i in range(20)]
    folder = run(tmp_path / "run", range(16), 1000, more=more)
    browser.open(report([folder]))
    took = float(browser.run("return document.documentElement.dataset.ready"))
    assert took < 2000
    assert browser.run("return document.querySelectorAll('#curves path.faint').length") == 16
    assert browser.errors() == []


def test_a_live_page_loads_itself_again(browser, tmp_path):
    folder = run(tmp_path / "run", state="running", evaluations=4)
    with alone(folder):
        pages = watch([folder], every=0.3)
        browser.open(next(pages))
        browser.run("window.first = true")
        browser.wait(lambda: browser.run("return !window.first"))
        assert browser.run("return document.querySelector('.state').textContent") == "running"
    list(pages)
    browser.wait(
        lambda: browser.run("return document.querySelector('.state').textContent") == "stopped"
    )
    assert browser.run("return document.querySelector('.live')") is None


def test_videos_too_large_for_the_page_play_from_beside_it(browser, tmp_path):
    folder = run(tmp_path / "a run" / "x_1")
    (folder / "videos").mkdir()
    Image.new("RGB", (64, 48), "teal").save(folder / "videos" / "one video.gif")
    browser.open(report([folder], tmp_path / "page.html", video_mb=0))
    browser.run("document.querySelector('#videos').scrollIntoView()")
    shown = "return document.querySelector('#videos img').naturalWidth"
    browser.wait(lambda: browser.run(shown) == 64)
    assert (
        Path(browser.run("return document.querySelector('#videos a').href")).name
        == "one%20video.gif"
    )
