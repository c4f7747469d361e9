/* The views of a page that has several: slices with a slider, pickers, bars and small multiples; or, for nested zones, the
   common areas and the zones as published. */

import { drawLegends } from "./colours.mjs";
import { paintZones } from "./draw.mjs";
import { modelOf, valuesOf } from "./model.mjs";
import { make } from "./panel.mjs";
import { classOf, exact, limitsOf, spread, CLASSES } from "./scale.mjs";
import { alongAxis, axisOf, labelOf, sliceAt, stepName, stepOf, stepsOf, valuesAlong } from "./slices.mjs";

/* Milliseconds that a slice stays while time plays. */
const PACE = 700;
const MULTIPLES = 12;

export function mountViews(world, root, { signal, show }) {
  const place = root.querySelector("#views");
  let slices = null, key = [], values = [], at = [], playing = 0, controls = {};
  const step = () => (slices.time >= 0 ? stepOf(key[slices.time]) : null);
  const axis = () => axisOf(slices);
  const sliceShown = () => world.model.n;

  const field = (label, control) => { const l = make("label", label); l.append(control); return l; };
  const select = (options, chosen, react) => {
    const s = make("select");
    for (const [value, words] of options) { const o = make("option", words); o.value = value; s.append(o); }
    s.value = String(chosen);
    s.addEventListener("change", () => react(s.value), { signal });
    return s;
  };
  const button = (words, label, react) => { const b = make("button", words); b.type = "button"; b.setAttribute("aria-label", label); b.title = label; b.addEventListener("click", react, { signal }); return b; };

  /* ---- build ---- */
  function take() {
    stop();
    if (!place) return;
    place.textContent = "";
    const { views } = world.data;
    place.hidden = !views;
    if (!views) return;
    const tools = make("form", "", "tools");
    tools.setAttribute("aria-label", "Which matrix the maps show");
    tools.addEventListener("submit", (e) => e.preventDefault(), { signal });
    controls = { note: make("p", "", "soft view-note"), pickers: [] };
    slices = world.data.slices || null;
    if (views.kind === "nested") {
      controls.kind = select([["-1", views.own], ["0", views.titles[0]]], world.model.n, (v) => { show(+v); refresh(); });
      controls.kind.id = "view-kind";
      tools.append(field("Maps show", controls.kind));
      place.append(tools, controls.note);
    } else buildSlices(tools, views);
    refresh();
  }

  function buildSlices(tools, views) {
    key = [...slices.keys[Math.max(views.first, 0)]];
    if (views.own) {
      controls.kind = select([["slice", "one slice at a time"], ["-1", views.own]], world.model.n >= 0 ? "slice" : "-1", (v) => { if (v === "-1") { stop(); show(-1); refresh(); } else goTo(key); });
      controls.kind.id = "view-kind";
      tools.append(field("Maps show", controls.kind));
    }
    slices.columns.forEach((name, column) => {
      if (column === slices.time) {
        const steps = stepsOf(slices);
        if (steps.length > 1) tools.append(field("Steps of time", select(steps.map((s) => [s, stepName(valuesAlong(slices, column, s))]), step(), (s) => { stop(); const next = [...key]; next[column] = valuesAlong(slices, column, +s)[0]; goTo(next, true); })));
        return;
      }
      const options = valuesAlong(slices, column);
      const picker = select(options.map((v, i) => [i, labelOf(v)]), options.indexOf(key[column]), (i) => { const next = [...key]; next[column] = options[+i]; goTo(next); });
      controls.pickers.push(() => { picker.value = options.indexOf(key[column]); });
      tools.append(field(name, picker));
    });
    if (slices.time >= 0) {
      controls.slider = make("input");
      controls.slider.type = "range"; controls.slider.id = "slice"; controls.slider.min = 0;
      controls.slider.addEventListener("input", () => { stop(); moveTo(+controls.slider.value); }, { signal });
      controls.play = button("▶", "Play", () => (playing ? stop() : play()));
      controls.play.id = "play";
      const label = make("span", "Time: ");
      controls.when = make("b");
      label.append(controls.when);
      const row = make("span", "", "row");
      row.append(controls.play, controls.slider);
      const around = make("div", "", "field time");
      controls.slider.setAttribute("aria-label", "Time");
      around.append(label, row);
      tools.append(around);
    }
    controls.bars = make("div", "", "slice-bars");
    place.append(tools, controls.bars, controls.note);
    if (slices.keys.length > 1) {
      const multiples = make("details", "", "multiples");
      controls.small = make("div", "", "small-maps");
      controls.legend = make("div", "", "legend");
      multiples.append(make("summary", "Small multiples"), controls.legend, controls.small);
      multiples.addEventListener("toggle", () => drawMultiples(), { signal });
      controls.multiples = multiples;
      place.append(multiples);
    }
  }

  /* ---- go ---- */
  function goTo(next, exactly = false) {
    /* A slice that is not published is shown as such, not as another one. */
    key = next;
    if (exactly && sliceAt(slices, key) < 0) { const found = alongAxis(slices, key, valuesAlong(slices, axis(), step())).find((n) => n >= 0); if (found !== undefined) key = [...slices.keys[found]]; }
    const n = sliceAt(slices, key);
    show(n >= 0 ? n : -2);
    refresh();
  }
  function moveTo(i) { const next = [...key]; next[axis()] = values[i]; goTo(next); }
  function play() {
    playing = setInterval(() => moveTo((values.indexOf(key[axis()]) + 1) % values.length), PACE);
    if (controls.play) { controls.play.textContent = "❚❚"; controls.play.title = "Pause"; controls.play.setAttribute("aria-label", "Pause"); }
    moveTo((values.indexOf(key[axis()]) + 1) % values.length);
  }
  function stop() {
    clearInterval(playing); playing = 0;
    if (controls.play) { controls.play.textContent = "▶"; controls.play.title = "Play"; controls.play.setAttribute("aria-label", "Play"); }
  }

  /* ---- say and draw ---- */
  function refresh() {
    if (!place || !world.data.views) return;
    const { views } = world.data, n = sliceShown();
    if (controls.kind) controls.kind.value = n === -1 ? "-1" : views.kind === "nested" ? String(n) : "slice";
    if (!slices) { controls.note.textContent = n < 0 ? views.ownNote : views.notes[n]; return; }
    values = valuesAlong(slices, axis(), step());
    at = alongAxis(slices, key, values);
    for (const follow of controls.pickers) follow();
    const label = key.map(labelOf).join(", ");
    if (controls.slider) {
      controls.slider.max = values.length - 1;
      controls.slider.value = values.indexOf(key[axis()]);
      controls.slider.setAttribute("aria-valuetext", label);
      controls.when.textContent = labelOf(key[axis()]);
    }
    controls.note.textContent = n === -1 ? views.ownNote : n < -1 ? `${label}: nothing of this slice is published: ${world.model.missing}.` : `${label}: ${exact(slices.volumes[world.state.basis][n])} ${world.state.basis === "trips" ? "trips" : "of the weight"} published. ${views.common ? "All slices have the same zones." : "Each slice has zones of its own: a zone of one slice need not be one of the next."}`;
    drawBars();
    if (controls.multiples?.open) drawMultiples();
  }

  function drawBars() {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), width = 1000, height = 64, volumes = slices.volumes[world.state.basis];
    const most = at.reduce((m, n) => Math.max(m, n < 0 ? 0 : volumes[n]), 0) || 1, each = width / values.length, now = key[axis()];
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`); svg.setAttribute("preserveAspectRatio", "none"); svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${world.state.basis === "trips" ? "Trips" : "Weight"} published in each slice, at most ${exact(most)}`);
    values.forEach((value, i) => {
      const n = at[i], tall = n < 0 ? height : Math.max(2, ((height - 2) * volumes[n]) / most), rect = document.createElementNS(svg.namespaceURI, "rect"), title = document.createElementNS(svg.namespaceURI, "title");
      title.textContent = `${labelOf(value)}: ${n < 0 ? world.model.missing : exact(volumes[n])}`;
      rect.setAttribute("x", (i * each + each * 0.06).toFixed(2)); rect.setAttribute("width", (each * 0.88).toFixed(2));
      rect.setAttribute("y", (height - tall).toFixed(2)); rect.setAttribute("height", tall.toFixed(2));
      rect.setAttribute("class", (n < 0 ? "gap" : "bar") + (value === now && sliceShown() !== -1 ? " now" : ""));
      rect.append(title);
      rect.addEventListener("click", () => { stop(); moveTo(i); });
      svg.append(rect);
    });
    const ends = make("p", "", "ends");
    ends.append(make("span", labelOf(values[0])), make("span", `${world.state.basis} published in each slice, at most ${exact(most)}`), make("span", values.length > 1 ? labelOf(values[values.length - 1]) : ""));
    controls.bars.textContent = "";
    controls.bars.append(svg, ends);
  }

  /* The slices from the one that is shown on, in the same colours. */
  function drawMultiples() {
    if (!controls.multiples.open) return;
    const from = values.length <= MULTIPLES ? 0 : Math.min(Math.max(values.indexOf(key[axis()]), 0), values.length - MULTIPLES);
    const chosen = values.slice(from, from + MULTIPLES).map((value, i) => ({ value, n: at[from + i] })).filter((s) => s.n >= 0);
    const state = { ...world.state, colour: "density", selected: null };
    const drawn = chosen.map((s) => { const model = modelOf(world.data, world.shapes, s.n); return { ...s, model, values: valuesOf(model, "origin", state) }; });
    const limits = limitsOf(drawn.flatMap((s) => s.values)), used = spread(limits.length + 1, CLASSES);
    const css = getComputedStyle(document.documentElement), colours = [...limits, 0].map((_, i) => css.getPropertyValue(`--origin-${used[i] + 1}`).trim());
    const all = drawn.flatMap((s) => s.values).filter((v) => v > 0);
    const legendScale = { of: { origin: { limits, low: all.reduce((m, v) => Math.min(m, v), Infinity), high: all.reduce((m, v) => Math.max(m, v), 0), colours, classes: [] } }, shown: { small: [{ name: "origin", hue: "origin", layer: { label: "origins" } }] } };
    controls.legend.dataset.scale = "small";
    drawLegends(controls.multiples, world.model, state, legendScale);
    delete controls.legend.dataset.scale;
    controls.small.textContent = "";
    for (const s of drawn) {
      const figure = make("figure"), canvas = make("canvas"), open = make("button", "", "small-map");
      open.type = "button"; open.setAttribute("aria-label", `Show ${labelOf(s.value)} on the maps`);
      open.addEventListener("click", () => { stop(); moveTo(values.indexOf(s.value)); });
      open.append(canvas);
      figure.append(open, make("figcaption", `${labelOf(s.value)}: ${exact(slices.volumes[world.state.basis][s.n])}`));
      controls.small.append(figure);
      paintSmall(canvas, s, limits, colours);
    }
  }
  function paintSmall(canvas, s, limits, colours) {
    const w = canvas.clientWidth || 200, h = canvas.clientHeight || 140, density = window.devicePixelRatio || 1, f = world.central;
    canvas.width = w * density; canvas.height = h * density;
    const k = Math.min(w / (f.width * 1.06), h / (f.height * 1.06)), c = canvas.getContext("2d");
    const view = { k, x: w / 2 - k * (f.west + f.width / 2), y: h / 2 - k * (f.north + f.height / 2) };
    c.fillStyle = world.palette.map; c.fillRect(0, 0, canvas.width, canvas.height);
    c.setTransform(density * k, 0, 0, density * k, density * view.x, density * view.y);
    const classes = s.values.map((v) => (v === null ? -1 : classOf(limits, v)));
    paintZones({ ...world, model: s.model }, c, s.model.layers.origin, { classes, colours, paths: null }, view, () => true, 1);
  }

  take();
  return { take, refresh: () => refresh(), stop, show: (n) => { show(n); refresh(); } };
}
