"""The report in a real browser. `make test-browser` installs one where it may."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.browser.driver import Browser, missing
from tests.report.pages import histograms, run, sweep
from thespis.report.notebook import Comparison, card
from thespis.report.report import report, watch
from thespis.report.serve import LivePage, Server
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

    def remembered() -> bool:
        browser.run("window.shown = true; location.reload()")
        browser.wait(
            lambda: browser.run("return !window.shown && document.readyState == 'complete'")
        )
        return brightness() > 200

    browser.wait(remembered)  # Chromium stores it a moment later
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


@pytest.mark.parametrize("kind", ["seeds", "population", "comparison", "nothing", "folder"])
def test_nothing_is_wider_than_a_phone(browser, tmp_path, kind):
    long = tmp_path / ("a" * 60)
    folders = [run(long, seeds=range(3), evaluations=0 if kind == "nothing" else 9)]
    if kind == "population":
        folders = [run(tmp_path / "b", seeds=range(8), tuner="pbt", evaluations=9)]
    if kind == "comparison":
        folders += [run(tmp_path / name, algo=name) for name in ("td3", "taac", "discrete-sac")]
    if kind == "folder":
        histograms(folders[0], 9)
        run(tmp_path / "named", name="n" * 200, tags=["t" * 80], notes="n" * 200, command="c" * 200)
        folders = [tmp_path]
    file = report(folders, tmp_path / "page.html")
    browser.size(375, 812, phone=True)
    browser.open(file)
    assert wider(browser) <= 0
    assert browser.errors() == []


def test_a_card_in_a_notebook_fits_a_phone(browser, tmp_path):
    folders = [run(tmp_path / name, seeds=range(3)) for name in ("a", "b" * 60)]
    parts = card(folders[0]) + Comparison(folders)._repr_html_()
    (tmp_path / "cell.html").write_text(f"<meta name=viewport content='width=device-width'>{parts}")
    browser.size(375, 812, phone=True)
    browser.open(tmp_path / "cell.html")
    assert wider(browser) <= 0
    heights = "return [...document.querySelectorAll('.thespis td')].map(e => e.clientHeight)"
    assert max(browser.run(heights)) < 30  # words are not broken


def test_a_printed_page_has_every_chart(browser, page):
    browser.open(page)
    empty = """return [...document.querySelectorAll(".plot > svg")].filter(
        e => !e.children.length && e.parentElement.clientWidth).length"""
    assert browser.run(empty) > 0  # charts are drawn when they are scrolled to
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run(empty) == 0


def texts(browser, selector):
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    return browser.run(script, selector)


def count(browser, selector):
    return len(texts(browser, selector))


def press(browser, selector, number=0):
    browser.run("document.querySelectorAll(arguments[0])[arguments[1]].click()", selector, number)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page of a folder: a group of two runs with three seeds, a run of one seed."""
    root = tmp_path_factory.mktemp("several") / "runs"
    run(root / "a_1", (0, 1), 20, name="first try", tags=["paper"], notes="with a warm start")
    run(root / "a_2", (2,), 20, values=np.linspace(-400, -300, 20)[:, None])
    values = np.linspace(-90, -20, 10)[:, None]
    histograms(run(root / "b_1", (0,), 10, algo="td3", values=values), 20)
    return report([root])


def test_every_axis_has_a_title(browser, folder):
    browser.open(folder)
    titles = texts(browser, "#curves .title-x"), texts(browser, "#curves .title-y")
    assert titles == (["environment steps"], ["evaluation return"])
    browser.run("document.querySelector('#metrics').scrollIntoView()")
    browser.wait(lambda: "critic loss" in texts(browser, "#metrics .title-y"))
    press(browser, "[data-axis=time]")
    assert texts(browser, "#curves .title-x") == ["seconds"]


def test_a_group_of_one_panel_fills_its_row(browser, folder):
    browser.open(folder)
    script = """return [...document.querySelectorAll("#metrics .grid")].map(grid =>
        [grid.children.length, grid.lastChild.offsetWidth / grid.offsetWidth])"""
    shares = dict(browser.run(script))
    assert shares[1] == 1
    browser.size(390, 844, phone=True)
    assert all(share == 1 for _, share in browser.run(script))


def test_runs_are_switched_on_and_off_by_a_click(browser, folder):
    browser.open(folder)
    curve = lambda: browser.run("return document.querySelector('#curves path.bold').outerHTML")
    drawn = lambda: [count(browser, f"#curves path.{kind}") for kind in ("faint", "bold", "band")]
    assert drawn() == [3, 2, 1]
    before, said = curve(), "3 of 3 runs shown"
    assert texts(browser, ".said") == [said]
    press(browser, ".run input", 1)  # another run of its group stays: the statistic is of that
    assert drawn() == [2, 2, 1]
    assert curve() != before
    press(browser, ".run input", 0)
    assert drawn() == [0, 1, 0]  # and one seed has no interval
    assert texts(browser, ".said") == ["1 of 3 runs shown"]
    pressed = "#curves .legend [aria-pressed=true]"
    assert texts(browser, pressed) == ["TD3"]
    browser.run("location.reload()")
    browser.wait(lambda: texts(browser, pressed) == ["TD3"])  # it is remembered
    press(browser, "#curves .legend button", 0)
    assert (drawn(), curve(), texts(browser, ".said")) == ([3, 2, 1], before, [said])


def test_one_run_of_a_group_alone_has_no_interval(browser, folder):
    browser.open(folder)
    press(browser, ".run input", 0)
    assert count(browser, "#curves path.band") == 0
    browser.mouse(("move", *browser.place(BIG, 0.99, 0.5)))
    tip = texts(browser, "#curves .tip:not([hidden])")[0]
    assert "SAC −300 " in tip.replace("TD3", " TD3").replace("seed", " seed")
    press(browser, ".run input", 0)


def test_the_table_of_runs_is_sorted_and_searched(browser, folder):
    browser.open(folder)
    names = lambda: [Path(x).name for x in texts(browser, "#runs tbody tr:not([hidden]) .path")]
    assert names() == ["a_1", "a_2", "b_1"]
    press(browser, "#runs th button", 1)  # by the last return, the greatest first
    assert names() == ["b_1", "a_1", "a_2"]
    order = "return document.querySelectorAll('#runs th')[1].getAttribute('aria-sort')"
    assert browser.run(order) == "descending"
    press(browser, "#runs th button", 1)
    assert names() == ["a_2", "a_1", "b_1"]
    browser.run("document.querySelector('#find').focus()")
    browser.keys(*"paper")
    assert names() == ["a_1"]
    press(browser, ".tools button", 1)  # hides what was found
    assert texts(browser, ".said") == ["2 of 3 runs shown"]
    press(browser, ".tools button", 0)


@pytest.mark.parametrize("place", [".command .copier", "#runs tbody .copier"])
def test_commands_can_be_copied(browser, page, folder, place):
    browser.open(page if place.startswith(".command") else folder)
    browser.run("navigator.clipboard.writeText = async text => { window.copied = text; }")
    press(browser, place)
    browser.wait(lambda: texts(browser, place)[0] == "Copied")
    assert browser.run("return window.copied") == "thespis train sac --env jax:pendulum"
    browser.open(page)
    assert texts(browser, ".command code") == ["thespis train sac --env jax:pendulum"]


def test_values_are_smoothed_and_the_logged_ones_stay_in_sight(browser, page):
    browser.open(page)
    bold = lambda: browser.run("return document.querySelector('#curves path.bold').outerHTML")
    before = bold()
    assert count(browser, "#curves path.raw") == 0
    slide = """const slider = document.querySelector("#smooth"); slider.value = arguments[0];
        slider.dispatchEvent(new Event("input"))"""
    browser.run(slide, 0.9)
    assert count(browser, "#curves path.raw") == 1
    assert bold() != before
    browser.mouse(("move", *browser.place(BIG, 0.99, 0.5)))
    tip = texts(browser, "#curves .tip:not([hidden])")[0]
    told = json.loads(browser.run("return document.getElementById('data').textContent"))
    assert f"{told['runs'][0]['last']:.1f} as logged".replace("-", "−") in tip
    browser.run(slide, 0)
    assert bold() == before


def test_axes_are_logarithmic_when_asked_for(browser, tmp_path):
    values = 10.0 ** np.linspace(0, 4, 9)[:, None]
    browser.open(report([run(tmp_path / "run", evaluations=9, values=values)]))
    press(browser, "#logY")
    assert ticks(browser, BIG, "y") == ["1", "10", "100", "1000", "10k"]
    press(browser, "#logX")
    assert ticks(browser, BIG)[:2] == ["1000", "2000"]
    straight = """const points = document.querySelector("#curves path.bold").getAttribute("d")
        .match(/[\\d.]+ [\\d.]+/g).map(text => text.split(" ").map(Number));
        return points.map(point => point[1])"""
    heights = browser.run(straight)
    np.testing.assert_allclose(np.diff(heights), np.diff(heights)[0], atol=0.2)
    start, end = browser.place(BIG, 0.5), browser.place(BIG, 0.9)
    browser.mouse(("move", *start), ("down",), ("move", *end), ("up",))
    assert ticks(browser, BIG)[0] != "1000"
    assert browser.errors() == []


def test_a_logarithmic_axis_has_room_for_what_is_below_zero(browser, tmp_path):
    values = np.array([-1000, -100, -10, 0, 10, 100, 1000.0])[:, None]
    browser.open(report([run(tmp_path / "run", evaluations=7, values=values)]))
    press(browser, "#logY")
    assert {"−100", "0", "100", "1000"} <= {*ticks(browser, BIG, "y")}
    assert "NaN" not in browser.run("return document.querySelector('#curves svg').outerHTML")


def test_histograms_tell_the_share_under_the_mouse_and_by_keys(browser, folder):
    browser.open(folder)
    box = "[id='chart-histogram-1-rollout/actions/0'] .plot"
    browser.place(box)
    browser.wait(lambda: len(ticks(browser, box, "y")) == 4)
    browser.mouse(("move", *browser.place(box, 0.3, 0.7)))
    assert "from −1 to 0100.0 % 10 of 10" in texts(browser, f"{box} .tip")[0]
    browser.run("document.querySelector(arguments[0]).focus()", box)
    browser.keys("\ue012")  # to the left, from the end
    assert "9,500 to 10,000 steps" in texts(browser, f"{box} .tip")[0]
    assert "from 0.5 to 1" in texts(browser, f"{box} .tip")[0]


def test_nothing_in_a_run_becomes_part_of_the_page(browser, tmp_path):
    evil = '"><img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>'
    said = dict.fromkeys(("name", "notes", "command", "env"), evil)
    said |= {"tags": [evil], "resumes": [evil], "hp": {evil: evil, "__proto__": evil}}
    metric = evil.replace("/", "\\")
    folders = [run(tmp_path / "a", more=(metric,), **said), run(tmp_path / "b" / "<i>x", algo=evil)]
    histograms(folders[0], 4, name=metric)
    (folders[0] / "compiled.json").write_text(json.dumps({evil: 1.0, "__proto__": 2.0}))
    status = {"state": "failed", "step": 1, "error": evil, "reason": evil}
    (folders[1] / "status.json").write_text(json.dumps(status))
    for given in ([folders[0]], folders, [tmp_path]):
        browser.open(report(given, tmp_path / "page.html"))
        browser.run("document.querySelectorAll('.chart').forEach(e => e.scrollIntoView())")
        assert browser.run("return window.hacked") is None
        assert count(browser, "img, i:not(.tip i), script") == 3  # the page's own
        assert evil in browser.run("return document.querySelector('main').textContent")
        assert browser.errors() == []
    browser.run(
        "document.body.append(Object.assign(document.createElement('script'), "
        "{textContent: 'window.hacked = 1'}))"
    )
    assert browser.run("return window.hacked") is None  # even if something did
    assert any("Content Security Policy" in error for error in browser.errors())


def test_a_served_page_is_new_when_there_is_something_new(browser, tmp_path):
    run(tmp_path / "runs" / "a_1")
    with Server(LivePage([tmp_path / "runs"], every=0.2)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        browser.open(server.url)
        browser.run("window.first = true")
        assert texts(browser, "h1") == ["1 run in runs/"]
        press(browser, "#logY")
        run(tmp_path / "runs" / "b_1", algo="td3")
        browser.wait(lambda: texts(browser, "h1") == ["2 runs in runs/"])
        assert browser.run("return document.querySelector('#logY').ariaPressed") == "true"
        assert browser.errors() == []
        server.shutdown()
        thread.join()
    browser.wait(lambda: texts(browser, ".live") == ["Not served"])  # and the page stays
    assert texts(browser, "h1") == ["2 runs in runs/"]
    browser.open("about:blank")
    browser.errors()  # that nobody answers


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
    browser.wait(lambda: count(browser, "#curves path.faint") == 16)
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


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1440])
def test_a_sweep_has_a_table_and_a_heat_map(browser, tmp_path, width, dark):
    browser.size(width, phone=width < 500)
    browser.dark(dark)
    browser.open(report([sweep(tmp_path / "rates_1")]))
    assert browser.errors() == []
    assert wider(browser) <= 0
    cells = "return [...document.querySelectorAll('#sweep .heat td')].map(e => e.textContent)"
    assert len(browser.run(cells)) == 3 * 2
    browser.run(
        "const e = document.getElementById('heat'); e.selectedIndex = 2;"
        "e.dispatchEvent(new Event('change'))"
    )
    assert len(browser.run(cells)) == 2 * 2
    best = "return document.querySelector('#sweep .command code').textContent"
    assert browser.run(best) == "thespis train td3 --env jax:pendulum --critic-lr 0.0003"
    assert "the curtain fell" in browser.run("return document.querySelector('#sweep').textContent")
