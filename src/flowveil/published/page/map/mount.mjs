/* Puts the maps of a page to work: what is drawn, and what the reader does. Nothing is ever requested, unless the page was
   made with a background map and the reader switches it on.

   mount(element, data) draws into the figures of an element, or makes them where it has none, and returns
   { update(data), destroy() }: an update keeps what is selected, by code, and the view where the frame is the same. */

import { drawLegends, paletteOf, scaleOf } from "./colours.mjs";
import { curvesOnMap, discOf, draw, endsOnMap, viewOf, visible } from "./draw.mjs";
import { centralOf, decode, distanceToFlow, inside, pathOf } from "./geometry.mjs";
import { ENDS, areasOf, modelOf, nameOf, placeAt, shapeAt, shapesOf, wholeExtent, zoneNamed } from "./model.mjs";
import { describe, describeFlow, fillPanel, make } from "./panel.mjs";
import { exact } from "./scale.mjs";
import { mountViews } from "./views.mjs";
import { fillTables } from "./tables.mjs";

/* A finger or a mouse is on a flow line when it is this near, in pixels. */
const NEAR = 6;

export function mount(root, data) {
  const $ = (selector) => root.querySelector(selector);
  const gone = new AbortController(), signal = gone.signal;
  if (!$("figure.map, #selected")) scaffold(root);
  const state = { basis: data.bases[0], colour: $("#colour")?.value ?? "density", lines: +($("#lines")?.value ?? 200), selected: null, flow: null, place: null, background: false, grid: true, view: { zoom: 1, dx: 0, dy: 0 } };
  const world = { state, maps: [], moving: false };
  const maps = (world.maps = [...root.querySelectorAll("figure.map[data-layer]")].map((figure) => ({ figure, layer: figure.dataset.layer, canvas: figure.querySelector("canvas"), context: figure.querySelector("canvas").getContext("2d"), hover: -1, hoverFlow: -1 })));
  const on = (id, event, act) => { const e = $("#" + id); if (e) e.addEventListener(event, () => act(e), { signal }); };

  /* ---- what is shown ---- */
  function take(next) {
    world.shapes = shapesOf(next);
    world.grid = next.grid ? { shapes: next.grid.shapes.map(decode) } : null;
    if (world.grid) {
      const first = world.grid.shapes[0];
      world.grid.width = first ? first.east - first.west : 0;
      if (next.grid.within) world.grid.within = pathOf(decode(next.grid.within));
    }
    world.data = next;
  }
  function show(n) {
    const before = world.model, chosen = state.selected && before.layers[state.selected.end].code[state.selected.zone];
    world.model = modelOf(world.data, world.shapes, n);
    world.published = world.data.views?.kind === "nested" ? (world.nested ??= modelOf(world.data, world.shapes, 0)) : null;
    state.flow = null;
    if (state.selected) {
      const zone = world.model.layers[state.selected.end].code.indexOf(chosen);
      state.selected = zone >= 0 ? { end: state.selected.end, zone } : null;
    }
    for (const map of maps) { map.hover = -1; map.hoverFlow = -1; }
  }
  function fitAnew() {
    world.extent = wholeExtent(world.model);
    world.central = centralOf(areasOf(world.model, state.basis));
    world.fitted = world.central;
    state.view = { zoom: 1, dx: 0, dy: 0 };
  }

  let waiting = 0, rest = 0;
  const redraw = (world.redraw = () => { waiting ||= requestAnimationFrame(drawAll); });
  const drawAll = () => { cancelAnimationFrame(waiting); waiting = 0; for (const map of maps) { draw(world, map); if (!world.moving) tellOutside(map); } };
  function refresh() {
    world.palette = paletteOf();
    world.scale = scaleOf(world.model, state, [...new Set(maps.map((m) => m.layer).filter((l) => l !== "flows"))]);
    drawLegends(root, world.model, state, world.scale);
    const panel = $("#selected");
    if (panel) fillPanel(world, panel, act);
    if ($("#clear")) $("#clear").disabled = !state.selected && state.flow === null && !state.place;
    fillTables(world, root, act);
    labels();
    redraw();
  }

  /* ---- what is chosen ---- */
  const act = {
    zone: (end, zone) => select(end, zone, true),
    flow: (i) => { state.flow = i; bringFlow(i); refresh(); },
    clear: () => select(null),
    published: (end, zone) => { const place = state.place; views.show(0); select(end, zone, true); state.place = place; refresh(); },
  };
  function select(end, zone, bringIt = false, place = null) {
    state.selected = end === null ? null : { end, zone };
    state.flow = null;
    state.place = end !== null && world.published ? place || centreOf(end, zone) : null;
    for (const map of maps) map.said.textContent = "";
    if (end !== null && bringIt) bring(boxOf(end, zone));
    refresh();
  }
  const centreOf = (end, zone) => { const layer = world.model.layers[end]; return layer.x[zone] === null ? null : { x: layer.x[zone], y: layer.y[zone] }; };
  const boxOf = (end, zone) => placeAt(world.model, world.model.layers[end], zone);
  function bringFlow(i) {
    const a = boxOf("origin", world.model.flows.origin[i]), b = boxOf("destination", world.model.flows.destination[i]);
    if (a && b) bring({ west: Math.min(a.west, b.west), east: Math.max(a.east, b.east), north: Math.min(a.north, b.north), south: Math.max(a.south, b.south) });
  }
  /* Move every map as little as needed to have the whole box in sight; zoom out where it is larger than the view. */
  function bring(box) {
    if (!maps.length || !box) return;
    const f = world.fitted;
    let [w, h] = maps.reduce(([mw, mh], map) => {
      const k = viewOf(world, map).k, room = 0.92;
      return map.canvas.clientWidth ? [Math.min(mw, (room * map.canvas.clientWidth) / 2 / k), Math.min(mh, (room * map.canvas.clientHeight) / 2 / k)] : [mw, mh];
    }, [Infinity, Infinity]);
    const factor = Math.max(1, (box.east - box.west) / (2 * w), (box.south - box.north) / (2 * h));
    state.view.zoom /= factor;
    [w, h] = [w * factor, h * factor];
    const x = f.west + f.width / 2 + state.view.dx * f.width, y = f.north + f.height / 2 + state.view.dy * f.height;
    state.view.dx += (Math.min(Math.max(x, box.east - w), box.west + w) - x) / f.width;
    state.view.dy += (Math.min(Math.max(y, box.south - h), box.north + h) - y) / f.height;
    moved();
  }

  function labels() {
    const { model } = world;
    for (const map of maps) {
      const layer = model.layers[map.layer];
      const selected = state.selected ? ` Filtered by ${state.selected.end} zone ${nameOf(model, state.selected.end, state.selected.zone)}.` : "";
      const what = map.layer === "flows" ? `Map of the ${exact(Math.min(state.lines, model.flows.origin.length))} largest flows as curves from origin to destination.` : `Map of ${exact(layer.code.length)} ${layer.label || `${map.layer} ${model.word}s`}, coloured by ${state.colour}.`;
      map.canvas.setAttribute("aria-label", what + selected + " Arrow keys move, plus and minus zoom, Enter selects the zone under the cross, Escape clears. The tables below hold the same numbers.");
      const note = map.figure.querySelector(".shown");
      if (note && layer) note.textContent = `${exact(layer.code.length)} ${layer.hue || map.layer} ${model.word}${layer.code.length === 1 ? "" : "s"}`;
      if (note && map.layer === "flows") {
        const n = { between: 0, within: 0, unplaced: 0 };
        for (const i of model.rank[state.basis]) {
          if (state.selected && model.flows[state.selected.end][i] !== state.selected.zone) continue;
          const kind = model.unplaced[i] ? "unplaced" : model.within[i] ? "within" : "between";
          if (kind === "unplaced" || n[kind] < state.lines) n[kind]++;
        }
        note.textContent = `the ${exact(n.between)} largest between two ${model.word}s${state.selected ? `, of the selected ${model.word}` : ""}; ${exact(n.within)} inside one${n.unplaced ? `; ${exact(n.unplaced)} to or from outside the area, not drawn` : ""}`;
      }
    }
  }

  /* What the view does not show is said, with a way to see it. */
  function tellOutside(map) {
    if (!world.data.frame) return;
    const seen = visible(map, viewOf(world, map));
    let n = 0, away = 0, all = 0;
    for (const name of map.layer === "flows" ? ENDS : [map.layer]) {
      const layer = world.model.layers[name], volume = layer[state.basis];
      layer.code.forEach((_, i) => {
        const place = placeAt(world.model, layer, i);
        const v = volume ? Math.max(volume[i], 0) : 0;
        all += v;
        if (place && !seen(place)) { n++; away += v; }
      });
    }
    const share = all ? (100 * away) / all : 0;
    const words = n ? `${n === 1 ? `1 ${world.model.word} lies` : `${exact(n)} ${world.model.word}s lie`} outside this view${all ? `, with ${share < 0.1 ? "under 0.1" : exact(+share.toPrecision(2))}% of the ${state.basis === "trips" ? "trips" : "weight"}` : ""}. ` : "";
    if (words === map.away) return;
    map.away = words;
    map.outside.hidden = n === 0;
    map.outside.firstChild.textContent = words;
  }

  /* ---- moving ---- */
  function zoomBy(factor, map, px, py) {
    const { clientWidth: w, clientHeight: h } = map.canvas, f = world.fitted;
    const before = viewOf(world, map);
    const x = px ?? w / 2, y = py ?? h / 2;
    const ux = (x - before.x) / before.k, uy = (y - before.y) / before.k;
    const least = Math.min(1, f === world.extent ? 1 : 0.5 * Math.min(f.width / world.extent.width, f.height / world.extent.height));
    state.view.zoom = Math.min(400, Math.max(least, state.view.zoom * factor));
    const after = viewOf(world, map);
    state.view.dx += (ux - (x - after.x) / after.k) / f.width;
    state.view.dy += (uy - (y - after.y) / after.k) / f.height;
    moved();
  }
  function panBy(dx, dy, map) {
    const k = viewOf(world, map).k;
    state.view.dx -= dx / k / world.fitted.width; state.view.dy -= dy / k / world.fitted.height;
    moved();
  }
  function reset(box) { world.fitted = box; state.view = { zoom: 1, dx: 0, dy: 0 }; moved(); }
  function moved() {
    /* Zoomed in, one finger moves the map; otherwise it scrolls the page. */
    for (const m of maps) m.canvas.style.touchAction = state.view.zoom > 1.05 ? "none" : "pan-y";
    redraw();
  }
  const dragging = () => { world.moving = true; clearTimeout(rest); rest = setTimeout(() => { world.moving = false; redraw(); }, 120); };

  /* ---- what is where ---- */
  /* The smallest zone that holds the point first; again at the same point: the next larger. */
  function zonesAt(map, px, py) {
    const view = viewOf(world, map), x = (px - view.x) / view.k, y = (py - view.y) / view.k, found = [];
    for (const name of map.layer === "flows" ? ENDS : [map.layer]) {
      const layer = world.model.layers[name];
      for (let i = layer.code.length - 1; i >= 0; i--) {
        const shape = shapeAt(world.model, layer, i);
        if (shape ? inside(shape, x, y) : layer.x[i] !== null && Math.hypot(layer.x[i] - x, layer.y[i] - y) * view.k < NEAR) found.push({ layer: name, zone: i });
      }
    }
    return found;
  }
  /* The flow under the pointer; of several the nearest, and of equals the one drawn on top. */
  function flowAt(map, px, py) {
    if (map.layer !== "flows" || !map.shown) return -1;
    const view = viewOf(world, map), volume = world.model.flows[state.basis];
    let best = -1, least = NEAR;
    for (const i of map.shown.between) {
      const d = Math.min(...curvesOnMap(world.model, view, i).map((ends) => distanceToFlow(px, py, ...ends)));
      if (d <= least) { least = d; best = i; }
    }
    if (best >= 0) return best;
    for (const i of map.shown.within) {
      const [x, y] = endsOnMap(world.model, view, i);
      if (Math.hypot(px - x, py - y) <= discOf(volume[i] / map.mostWithin)) best = i;
    }
    return best;
  }

  let last = { key: "", n: 0 };
  function pick(map, px, py, keyboard = false) {
    const flow = flowAt(map, px, py);
    if (flow >= 0) { state.flow = state.flow === flow ? null : flow; refresh(); return; }
    const found = zonesAt(map, px, py).filter((f) => !world.model.layers[f.layer].fixed && !world.model.layers[f.layer].values);
    if (!found.length) {
      if (!keyboard) return;
      /* Zones that cannot be selected can still be described. */
      const here = zonesAt(map, px, py)[0];
      map.said.textContent = here ? describe(world.model, state, here.layer, here.zone).join(", ") + "." : "No zone lies under the cross. Move the map with the arrow keys, or choose a zone in the table.";
      return;
    }
    const key = map.layer + found.map((f) => f.layer + f.zone).join();
    last = key === last.key ? { key, n: last.n + 1 } : { key, n: 0 };
    const chosen = found[last.n % (found.length + 1)], view = viewOf(world, map);
    if (chosen) select(world.model.layers[chosen.layer].end || chosen.layer, chosen.zone, false, { x: (px - view.x) / view.k, y: (py - view.y) / view.k }); else select(null);
  }

  /* ---- fingers, mouse and keys ---- */
  const tip = make("div", "", "tip");
  tip.hidden = true; document.body.append(tip);
  function tellTip(lines, e) {
    tip.textContent = "";
    lines.forEach((line, i) => tip.append(make(i ? "div" : "strong", line)));
    tip.style.left = Math.max(4, Math.min(e.clientX + 14, window.innerWidth - 290)) + "px";
    tip.style.top = Math.min(e.clientY + 14, window.innerHeight - 120) + "px";
  }
  for (const map of maps) listen(map);
  function listen(map) {
    const canvas = map.canvas, fingers = new Map();
    let drag = null, pinch = null;
    const at = (e) => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    const listenTo = (event, react, options) => canvas.addEventListener(event, react, { signal, ...options });
    const spanOf = () => { const [a, b] = [...fingers.values()]; return { length: Math.hypot(a[0] - b[0], a[1] - b[1]), x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2 }; };
    const leave = () => { tip.hidden = true; if (map.hover >= 0 || map.hoverFlow >= 0) { map.hover = map.hoverFlow = -1; redraw(); } };
    /* Two fingers belong to the map: the page must not scroll away under them. */
    listenTo("touchstart", (e) => { if (e.touches.length > 1) e.preventDefault(); }, { passive: false });
    listenTo("pointerdown", (e) => {
      fingers.set(e.pointerId, at(e));
      canvas.setPointerCapture(e.pointerId);
      if (fingers.size === 2) { pinch = spanOf(); drag = null; } else drag = { x: e.clientX, y: e.clientY, moved: false };
    });
    listenTo("pointermove", (e) => {
      if (fingers.has(e.pointerId)) fingers.set(e.pointerId, at(e));
      if (pinch && fingers.size === 2) {
        const now = spanOf();
        dragging();
        panBy(now.x - pinch.x, now.y - pinch.y, map);
        if (pinch.length > 0) zoomBy(now.length / pinch.length, map, now.x, now.y);
        pinch = now;
        return;
      }
      if (drag) {
        const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
        if (!drag.moved && Math.hypot(dx, dy) < 4) return;
        drag.moved = true; canvas.classList.add("dragging");
        dragging();
        panBy(dx, dy, map); drag.x = e.clientX; drag.y = e.clientY;
        tip.hidden = true;
        return;
      }
      if (pinch) return;
      const flow = flowAt(map, ...at(e)), found = flow >= 0 ? undefined : zonesAt(map, ...at(e))[0];
      const hover = found ? found.zone : -1;
      if (hover !== map.hover || flow !== map.hoverFlow || (found && found.layer !== map.hoverEnd)) { map.hover = hover; map.hoverFlow = flow; map.hoverEnd = found && found.layer; redraw(); }
      tip.hidden = flow < 0 && !found;
      if (flow >= 0) tellTip(describeFlow(world.model, flow), e); else if (found) tellTip(describe(world.model, state, found.layer, found.zone), e);
    });
    const up = (e, chosen) => {
      canvas.classList.remove("dragging");
      fingers.delete(e.pointerId);
      if (chosen && drag && !drag.moved && !pinch) pick(map, ...at(e));
      drag = null;
      if (!fingers.size) pinch = null;
      if (!chosen || e.pointerType === "touch") leave();
    };
    listenTo("pointerleave", leave);
    listenTo("pointerup", (e) => up(e, true));
    listenTo("pointercancel", (e) => up(e, false));
    listenTo("wheel", (e) => {
      /* The wheel scrolls the page, unless the map has been chosen by a click or a modifier is held. */
      if (!e.ctrlKey && !e.metaKey && document.activeElement !== canvas) return;
      e.preventDefault();
      dragging();
      zoomBy(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0022)), map, ...at(e));
    }, { passive: false });
    listenTo("dblclick", (e) => zoomBy(2, map, ...at(e)));
    listenTo("keydown", (e) => {
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[e.key];
      if (step) panBy(...step, map);
      else if (e.key === "+" || e.key === "=") zoomBy(1.5, map);
      else if (e.key === "-") zoomBy(1 / 1.5, map);
      else if (e.key === "0") reset(world.central);
      else if (e.key === "Escape") select(null);
      else if (e.key === "Enter" || e.key === " ") pick(map, canvas.clientWidth / 2, canvas.clientHeight / 2, true);
      else return;
      e.preventDefault();
    });
    listenTo("focus", redraw);
    listenTo("blur", redraw);
    const zoom = make("div", "", "zoom");
    for (const [text, label, react] of [["+", "Zoom in", () => zoomBy(1.6, map)], ["−", "Zoom out", () => zoomBy(1 / 1.6, map)], ["⤢", "Show everything", () => reset(world.extent)]]) {
      const b = make("button", text);
      b.type = "button"; b.title = label; b.setAttribute("aria-label", label);
      b.addEventListener("click", react);
      zoom.append(b);
    }
    map.outside = make("p", "", "outside soft");
    map.outside.hidden = true; map.away = "";
    const all = make("button", "Show all");
    all.type = "button";
    all.addEventListener("click", () => reset(world.extent));
    map.outside.append(document.createTextNode(""), all);
    map.said = make("p", "", "said");
    map.said.setAttribute("role", "status");
    map.added = [zoom, map.said, map.outside];
    canvas.parentElement.append(zoom);
    map.figure.append(map.said, map.outside);
  }

  on("basis", "change", (e) => { state.basis = e.value; refresh(); views.refresh(); });
  on("colour", "change", (e) => { state.colour = e.value; refresh(); });
  on("lines", "input", (e) => { state.lines = +e.value; $("#lines-shown").textContent = e.value; labels(); redraw(); });
  on("grid", "change", (e) => { state.grid = e.checked; redraw(); });
  on("background", "change", (e) => { state.background = e.checked; $("#attribution").hidden = !e.checked; redraw(); });
  on("clear", "click", () => select(null));
  on("zone-end", "change", () => fillTables(world, root, act));
  on("zone-filter", "input", () => fillTables(world, root, act));
  on("find", "change", (e) => {
    const end = $("#find-end").value, zone = zoneNamed(world.model, end, e.value), wanted = e.value.trim();
    e.setCustomValidity(!wanted || zone >= 0 ? "" : `There is no ${end} zone of that code or name.`);
    e.reportValidity();
    if (zone >= 0) select(end, zone, true); else if (!wanted) select(null);
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh, { signal });
  const printing = (now) => { document.documentElement.classList.toggle("printing", now); refresh(); drawAll(); };
  addEventListener("beforeprint", () => printing(true), { signal });
  addEventListener("afterprint", () => printing(false), { signal });
  matchMedia("print").addEventListener("change", (e) => { if (e.matches) printing(true); }, { signal });
  if (maps.length > 12) for (const moved of ["scroll", "resize"]) addEventListener(moved, redraw, { passive: true, signal });
  /* An observer begins with a call, when nothing has another size yet. */
  const asDrawn = ({ canvas, drawn }) => drawn && drawn.width === canvas.clientWidth && drawn.height === canvas.clientHeight;
  const resized = new ResizeObserver(() => { if (!maps.every(asDrawn)) redraw(); });
  resized.observe(root === document ? document.body : root);

  take(data);
  show(data.views?.first ?? -1);
  fitAnew();
  const views = mountViews(world, root, { signal, show: (n) => { show(n); refresh(); } });
  refresh();
  drawAll();
  return {
    update(next) {
      const same = JSON.stringify(next.frame) === JSON.stringify(world.data.frame);
      take(next);
      if (!next.bases.includes(state.basis)) state.basis = next.bases[0];
      world.nested = null;
      show(next.views?.first ?? -1);
      if (same) world.extent = wholeExtent(world.model); else fitAnew();
      views.take();
      refresh();
    },
    destroy() {
      gone.abort(); resized.disconnect(); tip.remove(); views.stop();
      for (const map of maps) for (const e of map.added) e.remove();
    },
  };
}


/* The figures of an element that has none yet. */
function scaffold(root) {
  const board = make("div", "", "board"), drawn = make("div", "", "drawn");
  const pair = make("div", "", "maps"), below = make("div", "", "maps");
  for (const [layer, title, place] of [["origin", "Where trips start", pair], ["destination", "Where trips end", pair], ["flows", "The largest flows", below]]) {
    const figure = make("figure", "", layer === "flows" ? "map wide" : "map"), caption = make("figcaption"), canvas = make("canvas"), around = make("div", "", "canvas"), note = make("span", "", "soft");
    figure.dataset.layer = layer;
    note.append(make("span", "", "shown"));
    caption.append(make("strong", title), note);
    canvas.tabIndex = 0; canvas.setAttribute("role", "application"); canvas.setAttribute("aria-roledescription", "map");
    around.append(canvas); figure.append(caption, around); place.append(figure);
  }
  const legend = make("div", "", "legend"), panel = make("div", "", "selected");
  legend.dataset.scale = "main";
  panel.id = "selected"; panel.setAttribute("role", "status");
  drawn.append(pair, legend, below);
  board.append(drawn, panel);
  root.append(board);
}
