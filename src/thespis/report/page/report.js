// --- the bar --------------------------------------------------------------------------------

function theme() {
  const root = document.documentElement, dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const button = h("button", { type: "button", id: "theme", onclick: () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("thespis-theme", root.dataset.theme); } catch {}
    tell();
  } });
  const tell = () => { button.textContent = dark() ? "☀" : "☾"; button.setAttribute("aria-label", dark() ? "Light colours" : "Dark colours"); button.title = button.getAttribute("aria-label"); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
  return button;
}

function axes() {
  const option = (axis, text) => pressed(h("button", { type: "button", "data-axis": axis, onclick: () => change({ axis, zoom: null }) }, text), () => view.axis === axis);
  const log = (name, text, title) => pressed(h("button", { type: "button", id: name, title, onclick: () => change({ [name]: !view[name] }) }, text), () => view[name]);
  return [h("div", { class: "pair", role: "group", "aria-label": "Axis of the curves" }, option("steps", "Steps"), option("time", "Time")),
    h("div", { class: "pair", role: "group", "aria-label": "Logarithmic axes" }, log("logX", "log x", "Logarithmic steps or time"), log("logY", "log y", "Logarithmic values"))];
}

function smoothing() {
  const slider = h("input", { type: "range", id: "smooth", min: 0, max: 0.98, step: 0.02, title: "Smoothing: 0 shows the values as logged", oninput: () => change({ smooth: +slider.value }) });
  const value = h("output", { for: "smooth" });
  const follow = () => { slider.value = view.smooth; value.textContent = view.smooth ? view.smooth.toFixed(2) : "off"; };
  followers.push(follow);
  follow();
  return h("label", { class: "smooth" }, h("span", {}, "Smooth"), slider, value);
}

function live() {
  if (!data.live) return null;
  const button = pressed(h("button", { type: "button", class: "live", onclick: () => change({ live: !view.live }) }, "Live"), () => view.live);
  const busy = () => document.hidden || charts.some(chart => chart.from != null || !chart.tip.hidden) || document.activeElement?.type === "search"
    || [...document.querySelectorAll("video")].some(video => !video.paused);
  setInterval(async () => {
    if (!view.live || busy()) return;
    if (data.edition) { // ask the server whether there is a new version
      try {
        const answer = await fetch(location.href, { method: "HEAD", cache: "no-store" });
        button.textContent = answer.ok ? "Live" : "Not served";
        if (!answer.ok || answer.headers.get("ETag") === `"${data.edition}"`) return;
      } catch { button.textContent = "Not served"; return; }
    }
    change({ focus: document.activeElement?.id || null });
    location.reload();
  }, 1000 * data.live);
  return button;
}

function bar(parts) {
  const reset = h("button", { type: "button", id: "reset", hidden: !view.zoom, onclick: () => change({ zoom: null }) }, "Zoom out");
  followers.push(() => { reset.hidden = !view.zoom; });
  return h("header", { class: "bar" }, h("div", { class: "wrap" },
    h("nav", { "aria-label": "Sections" }, parts.map(part => h("a", { href: `#${part.id}` }, part.querySelector("h2").textContent))),
    h("div", { class: "switches" }, reset, smoothing(), axes(), live(), theme())));
}

// --- the page -------------------------------------------------------------------------------

function curves() {
  const specs = data.population ? [data.population.members] : data.returns.filter(chart => chart.series.length);
  const figures = specs.map(chart => new Chart(chart, "big").figure);
  return section("curves", "Learning curves", figures.length > 2 ? h("div", { class: "two" }, figures) : figures,
    !figures.length && h("p", { class: "notice" }, "There is no evaluation yet."), members());
}

function population() {
  const { tree, schedules } = data.population || {};
  return tree && section("population", "Population", new Tree(tree).figure,
    schedules.length > 0 && h("h3", {}, "Hyper-parameters along the winning line, and what the others tried"),
    h("div", { class: "grid" }, schedules.map(chart => new Chart(chart, "small").figure)));
}

const parts = [sweep(), !one && overview(), curves(), population(), media("videos", "Videos", data.videos), media("pictures", "Pictures", data.pictures, true),
  metrics(), programs(), configuration()].filter(Boolean);
const made = new Date(data.made);
document.getElementById("page").append(
  bar(parts),
  h("main", { class: "wrap", id: "main" },
    h("h1", {}, data.title),
    ...one ? about(one).filter(Boolean) : [],
    ...runs.filter(run => run.error).map(run => h("p", { class: "notice bad", role: "alert" }, `${run.path}: ${run.error}`)),
    ...data.faults.map(fault => h("p", { class: "notice bad", role: "alert" }, `Left out: ${fault}`)),
    ...one ? [cards(one), ...commands(one)] : [], ...parts,
    h("footer", {}, `Thespis ${data.version}, ${made.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" })}. `,
      "Drag over a chart to zoom, double-click or ", h("kbd", {}, "Esc"), " to see all; with a chart in focus ", h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " read values.")));
document.getElementById(view.focus)?.focus({ preventScroll: true });
document.documentElement.dataset.ready = String(Math.round(performance.now()));
