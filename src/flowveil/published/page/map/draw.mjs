/* Draws one map on its canvas. `world` is what all maps of a page share: model, state, scale, palette, view, cover. */

import { drawLines, drawTowns } from "./context.mjs";
import { bendOf, degreesOf, joined, pathOf } from "./geometry.mjs";
import { ENDS, shapeAt, shownFlows } from "./model.mjs";

/* A map that takes longer to draw is moved as a picture, and drawn again when it rests. */
const SLOW = 24;

export function fit(world, map) {
  const { clientWidth: w, clientHeight: h } = map.canvas, f = world.fitted;
  const k = Math.min(w / (f.width * 1.08), h / (f.height * 1.08));
  return { k, x: w / 2 - k * (f.west + f.width / 2), y: h / 2 - k * (f.north + f.height / 2) };
}
/* The view is kept relative to the fitted one, so that maps of different sizes move together. */
export function viewOf(world, map) {
  const base = fit(world, map), { zoom, dx, dy } = world.state.view, f = world.fitted;
  const { clientWidth: w, clientHeight: h } = map.canvas, k = base.k * zoom;
  const cx = (w / 2 - base.x) / base.k + dx * f.width, cy = (h / 2 - base.y) / base.k + dy * f.height;
  return { k, x: w / 2 - k * cx, y: h / 2 - k * cy };
}
export const visible = (map, view) => {
  const west = -view.x / view.k, north = -view.y / view.k;
  const east = west + map.canvas.clientWidth / view.k, south = north + map.canvas.clientHeight / view.k;
  return (s) => s.east >= west && s.west <= east && s.south >= north && s.north <= south;
};
const layered = (model, layer) => layer.overlap ?? !(model.homogeneous || layer.fixed);

/* Half of a layer's zones are wider than this: edges of smaller ones would hide their colours. */
const typicalWidth = (model, layer) => (layer.typical ??= (() => {
  const widths = layer.shape.filter((n) => n >= 0).map((n) => model.shapes[n].east - model.shapes[n].west).sort((a, b) => a - b);
  return widths.length ? widths[widths.length >> 1] : 0;
})());
const coverOf = (model, layer) => (layer.cover ??= joined(layer.shape.filter((n) => n >= 0).map((n) => model.shapes[n])));

export function draw(world, map) {
  const { canvas, context: c } = map, w = canvas.clientWidth, h = canvas.clientHeight;
  if (!w || !h || !world.model.data.frame) return;
  const printed = document.documentElement.classList.contains("printing");
  if (world.maps.length > 12 && !printed) {
    /* A page of many maps draws those in sight. */
    const box = canvas.getBoundingClientRect();
    if (box.bottom < -300 || box.top > innerHeight + 300) return;
  }
  const density = Math.max(window.devicePixelRatio || 1, printed ? 3 : 1);
  if (canvas.width !== Math.round(w * density) || canvas.height !== Math.round(h * density)) {
    canvas.width = Math.round(w * density); canvas.height = Math.round(h * density);
    map.drawn = null;
  }
  const view = viewOf(world, map);
  if (world.moving && map.drawn && map.drawn.cost > SLOW && !printed) { moveAsPicture(world, map, view, density); return; }
  const began = performance.now();
  /* What is in view, in degrees: west, south, east, north. */
  canvas.dataset.view = [...toDegrees(world, view, 0, h).reverse(), ...toDegrees(world, view, w, 0).reverse()].map((v) => v.toFixed(6)).join();
  c.setTransform(density, 0, 0, density, 0, 0);
  c.globalAlpha = 1;
  c.fillStyle = world.palette.map;
  c.fillRect(0, 0, w, h);
  if (world.state.background) drawBackground(world, map, view);
  const pen = {
    toUnits: () => c.setTransform(density * view.k, 0, 0, density * view.k, density * view.x, density * view.y),
    toPixels: () => c.setTransform(density, 0, 0, density, 0, 0),
  };
  drawLines(world, map, view, pen);
  if (map.layer === "flows") drawFlows(world, map, view, pen);
  else drawZones(world, map, view, pen);
  drawTowns(world, map, view, pen);
  drawScaleBar(world, map, view);
  if (canvas === document.activeElement && canvas.matches(":focus-visible")) {
    c.strokeStyle = world.palette.focus; c.lineWidth = 2; c.beginPath();
    c.moveTo(w / 2 - 12, h / 2); c.lineTo(w / 2 + 12, h / 2); c.moveTo(w / 2, h / 2 - 12); c.lineTo(w / 2, h / 2 + 12); c.stroke();
  }
  map.drawn = { view, width: w, height: h, cost: performance.now() - began, picture: null };
}

function moveAsPicture(world, map, view, density) {
  const { canvas, context: c, drawn } = map;
  if (!drawn.picture) {
    drawn.picture = document.createElement("canvas");
    drawn.picture.width = canvas.width; drawn.picture.height = canvas.height;
    drawn.picture.getContext("2d").drawImage(canvas, 0, 0);
  }
  const factor = view.k / drawn.view.k;
  c.setTransform(1, 0, 0, 1, 0, 0);
  c.globalAlpha = 1; c.fillStyle = world.palette.map; c.fillRect(0, 0, canvas.width, canvas.height);
  c.drawImage(drawn.picture, density * (view.x - factor * drawn.view.x), density * (view.y - factor * drawn.view.y), canvas.width * factor, canvas.height * factor);
}

/* Hexagons of a finer resolution stick out of coarser ones: cut them off at the zones. */
function drawGrid(world, c, view, within, colour, opacity) {
  const { grid, state, model } = world;
  if (!grid || !state.grid || model.estimated || grid.width * view.k < 4) return;
  c.save();
  /* Thousands of boxes are slow to cut at; their common outline is not. */
  if (grid.within) c.clip(grid.within, "evenodd"); else c.clip(within(), "nonzero");
  c.lineWidth = 0.7 / view.k; c.strokeStyle = colour; c.globalAlpha = opacity;
  c.stroke(grid.path ??= joined(grid.shapes));
  c.restore();
}

/* Diagonal lines that keep their width, whatever the zoom. */
function hatchOf(world, c, k) {
  const { palette } = world;
  if (world.hatch?.colour !== palette.hatch) {
    const tile = document.createElement("canvas"), size = 14;
    tile.width = tile.height = size;
    const t = tile.getContext("2d");
    t.strokeStyle = palette.hatch; t.lineWidth = 1.6;
    for (const d of [-size, 0, size]) { t.beginPath(); t.moveTo(d - 2, size + 2); t.lineTo(d + size + 2, -2); t.stroke(); }
    world.hatch = { colour: palette.hatch, tile };
  }
  const pattern = c.createPattern(world.hatch.tile, "repeat");
  pattern.setTransform(new DOMMatrix([0.5 / k, 0, 0, 0.5 / k, 0, 0]));
  return pattern;
}

/* Zones of one layer in the colours of its scale; a small map draws the same without anything on top. */
export function paintZones(world, c, layer, s, view, seen, opacity) {
  const { model, palette } = world, overlapping = layered(model, layer);
  const pixel = view.k * typicalWidth(model, layer);
  /* Layers of one value, as in comparisons, have areas of nothing; zones of a release have what is not published. */
  const hatch = layer.values ? "transparent" : hatchOf(world, c, view.k);
  c.strokeStyle = palette.outline;
  c.lineWidth = (pixel < 9 ? 0.35 : 0.8) / view.k;
  c.globalAlpha = opacity;
  if (!overlapping) {
    if (!s.paths) {
      s.paths = s.colours.map(() => new Path2D());
      s.missing = new Path2D();
      layer.shape.forEach((n, i) => { if (n >= 0) (s.paths[s.classes[i]] || s.missing).addPath(pathOf(model.shapes[n])); });
    }
    c.fillStyle = hatch; c.fill(s.missing);
    s.paths.forEach((path, i) => { c.fillStyle = s.colours[i]; c.fill(path); });
    if (pixel > 4) c.stroke(coverOf(model, layer));
    return;
  }
  /* Overlapping zones: large ones first, so that small ones lie visibly on top. Boxes are fills: edges of thousands that
     cross would be a mesh; a thin edge in the colour of the map keeps those apart that are large enough to see. */
  if (model.boxes) { c.strokeStyle = palette.map; c.lineWidth = 0.4 / view.k; }
  for (let i = 0; i < layer.code.length; i++) {
    const shape = model.shapes[layer.shape[i]];
    if (!shape || !seen(shape)) continue;
    c.fillStyle = s.classes[i] >= 0 ? s.colours[s.classes[i]] : hatch;
    const path = pathOf(shape);
    c.fill(path);
    if (!model.boxes || (shape.east - shape.west) * view.k > 14) c.stroke(path);
  }
}

function drawZones(world, map, view, pen) {
  const { model, state, palette } = world, c = map.context, layer = model.layers[map.layer], s = world.scale.of[map.layer];
  pen.toUnits();
  paintZones(world, c, layer, s, view, visible(map, view), s.faded ? 0.3 : state.background ? 0.6 : layered(model, layer) && !model.boxes ? 0.85 : 1);
  c.globalAlpha = 1;
  if (!layer.fixed && !model.boxes) drawGrid(world, c, view, () => coverOf(model, layer), palette.soft, 0.22);
  if (model.boxes) drawGrid(world, c, view, null, palette.soft, 0.1);
  pen.toPixels();
  layer.shape.forEach((n, i) => {
    if (n >= 0 || s.classes[i] < 0 || layer.x[i] === null) return;
    c.fillStyle = s.colours[s.classes[i]]; c.strokeStyle = palette.outline; c.lineWidth = 0.8;
    c.beginPath(); c.arc(view.x + view.k * layer.x[i], view.y + view.k * layer.y[i], 4, 0, 7); c.fill(); c.stroke();
  });
  const end = layer.end || map.layer, { selected, flow } = state;
  if (selected && !layer.fixed) {
    if (end === selected.end) outline(world, map, view, layer, selected.zone, palette.ink, 3);
    else outline(world, map, view, model.layers[selected.end], selected.zone, palette[selected.end], 2, [6, 4]);
  }
  if (flow !== null && !layer.fixed && model.flows[end]) outline(world, map, view, layer, model.flows[end][flow], palette.ink, 3);
  if (map.hover >= 0) outline(world, map, view, layer, map.hover, palette.ink, 1.6);
}

function outline(world, map, view, layer, zone, colour, width, dash = []) {
  const c = map.context, shape = shapeAt(world.model, layer, zone);
  c.strokeStyle = colour; c.lineWidth = width; c.setLineDash(dash);
  if (shape) {
    c.save();
    const t = c.getTransform();
    c.setTransform(t.a * view.k, 0, 0, t.d * view.k, t.a * view.x, t.d * view.y);
    c.lineWidth = width / view.k; c.setLineDash(dash.map((d) => d / view.k));
    c.stroke(pathOf(shape)); c.restore();
  } else if (layer.x[zone] !== null) { c.beginPath(); c.arc(view.x + view.k * layer.x[zone], view.y + view.k * layer.y[zone], 6, 0, 7); c.stroke(); }
  c.setLineDash([]);
}

/* ---- flows ---- */

/* Where a flow begins and ends on a map, in pixels. */
export const endsOnMap = (model, view, i) => {
  const { origin, destination } = model.layers, o = model.flows.origin[i], d = model.flows.destination[i];
  return [view.x + view.k * origin.x[o], view.y + view.k * origin.y[o], view.x + view.k * destination.x[d], view.y + view.k * destination.y[d]];
};
/* The same for each curve of it: two where the shorter way crosses the edge of a map of the whole world. */
export const curvesOnMap = (model, view, i) => {
  const [x0, y0, x1, y1] = endsOnMap(model, view, i), world = view.k / model.data.frame.perUnit;
  if (Math.abs(x1 - x0) <= world / 2) return [[x0, y0, x1, y1]];
  const turn = x1 > x0 ? -world : world;
  return [[x0, y0, x1 + turn, y1], [x0 - turn, y0, x1, y1]];
};
export const discOf = (share) => 2 + 15 * Math.sqrt(share);
/* The largest flow is nine pixels wide where few are large; many of one size are thinner, or they would hide each other. */
const widthsOf = (model, list, basis, most) => {
  const together = list.reduce((sum, i) => sum + Math.max(model.flows[basis][i], 0) / most, 0);
  const widest = 8.2 * Math.min(1, 4 / Math.sqrt(together || 1));
  return (share) => 0.8 + widest * Math.max(share, 0) ** 0.8;
};
export const largestOf = (model, list, basis) => list.reduce((most, i) => Math.max(most, model.flows[basis][i]), 0) || 1;

function curve(c, [x0, y0, x1, y1]) {
  const [bx, by] = bendOf(x0, y0, x1, y1);
  c.beginPath(); c.moveTo(x0, y0); c.quadraticCurveTo(bx, by, x1, y1); c.stroke();
}

function gradientOf(c, ends, palette) {
  const gradient = c.createLinearGradient(...ends);
  gradient.addColorStop(0.1, palette.origin); gradient.addColorStop(0.9, palette.destination);
  return gradient;
}

function drawFlows(world, map, view, pen) {
  const { model, state, palette } = world, c = map.context, { origin } = model.layers;
  pen.toUnits();
  c.lineWidth = 0.7 / view.k; c.strokeStyle = palette.outline; c.globalAlpha = model.boxes ? 0.15 : 0.45;
  const zones = () => (model.everyZone ??= joined([...new Set(ENDS.flatMap((end) => model.layers[end].shape))].filter((n) => n >= 0).map((n) => model.shapes[n])));
  if (model.boxes) { if (world.grid?.within) c.stroke(world.grid.within); } else if (view.k * typicalWidth(model, origin) > 4) c.stroke(zones());
  drawGrid(world, c, view, zones, palette.grid, 0.8);
  pen.toPixels();
  const shown = (map.shown = shownFlows(model, state));
  const volume = model.flows[state.basis];
  const mostWithin = (map.mostWithin = largestOf(model, shown.within, state.basis)), mostBetween = largestOf(model, shown.between, state.basis);
  const widthOf = widthsOf(model, shown.between, state.basis, mostBetween);
  for (const i of shown.within) {
    /* Inside one zone: a disc at its centre, with its own scale, because such flows dwarf the others. */
    const [x, y] = endsOnMap(model, view, i), chosen = i === state.flow || i === map.hoverFlow;
    c.globalAlpha = chosen ? 0.5 : 0.16; c.fillStyle = palette.origin;
    c.beginPath(); c.arc(x, y, discOf(volume[i] / mostWithin), 0, 7); c.fill();
    c.globalAlpha = chosen ? 1 : 0.5; c.strokeStyle = chosen ? palette.ink : palette.origin; c.lineWidth = chosen ? 2 : 0.8; c.stroke();
  }
  c.lineCap = "round";
  const aside = state.flow !== null ? 0.35 : 1;
  for (const i of shown.between) {
    const share = volume[i] / mostBetween;
    c.globalAlpha = (0.25 + 0.65 * Math.sqrt(share)) * aside;
    c.lineWidth = widthOf(share);
    for (const ends of curvesOnMap(model, view, i)) { c.strokeStyle = gradientOf(c, ends, palette); curve(c, ends); }
  }
  c.globalAlpha = 1;
  for (const i of new Set([map.hoverFlow, state.flow])) {
    if (i === null || i < 0 || model.within[i]) continue;
    const width = widthOf(volume[i] / mostBetween);
    for (const ends of curvesOnMap(model, view, i)) {
      c.lineWidth = width + 3; c.strokeStyle = palette.ink; curve(c, ends);
      c.lineWidth = width; c.strokeStyle = gradientOf(c, ends, palette); curve(c, ends);
    }
  }
  if (state.selected) outline(world, map, view, model.layers[state.selected.end], state.selected.zone, palette.ink, 3);
  if (map.hover >= 0) outline(world, map, view, model.layers[map.hoverEnd || "origin"], map.hover, palette.ink, 1.6);
}

/* ---- where it is ---- */

/* How many metres a pixel is, at the middle of the map. */
function drawScaleBar(world, map, view) {
  const c = map.context, h = map.canvas.clientHeight, { frame } = world.model.data, { palette } = world;
  const middle = frame.north + ((h / 2 - view.y) / view.k) * frame.perUnit;
  const lat = Math.atan(Math.sinh(Math.PI * (1 - 2 * middle)));
  const metres = (40075017 * Math.cos(lat) * frame.perUnit) / view.k;
  const raw = metres * 90, power = 10 ** Math.floor(Math.log10(raw));
  const length = [1, 2, 5].map((m) => m * power).filter((m) => m <= raw).pop();
  const px = length / metres, text = length >= 1000 ? length / 1000 + " km" : length + " m";
  c.font = "12px system-ui, sans-serif";
  c.globalAlpha = 0.82; c.fillStyle = palette.map; c.fillRect(6, h - 30, Math.max(px, c.measureText(text).width) + 16, 24);
  c.globalAlpha = 1; c.strokeStyle = palette.ink; c.lineWidth = 1.5;
  c.beginPath(); c.moveTo(13, h - 15); c.lineTo(13, h - 11); c.lineTo(13 + px, h - 11); c.lineTo(13 + px, h - 15); c.stroke();
  c.fillStyle = palette.ink; c.fillText(text, 14, h - 17);
  drawPlace(world, map, view, 24 + Math.max(px, c.measureText(text).width), metres);
}

const toDegrees = (world, view, px, py) => degreesOf(world.model.data.frame, (px - view.x) / view.k, (py - view.y) / view.k);
/* North, and the coordinates of the middle: enough to find the area in an atlas where there is no background map. */
function drawPlace(world, map, view, left, metres) {
  const c = map.context, w = map.canvas.clientWidth, h = map.canvas.clientHeight, { palette } = world;
  const digits = Math.max(0, Math.min(5, Math.round(Math.log10(111320 / (metres * 20)))));
  const text = "middle: " + toDegrees(world, view, w / 2, h / 2).map((v, i) => Math.abs(v).toFixed(digits) + "° " + (i ? (v < 0 ? "W" : "E") : v < 0 ? "S" : "N")).join(", ");
  c.globalAlpha = 0.82; c.fillStyle = palette.map;
  c.fillRect(left, h - 30, c.measureText(text).width + 12, 24); c.fillRect(6, 6, 24, 36);
  c.globalAlpha = 1; c.fillStyle = palette.ink;
  c.fillText(text, left + 6, h - 14);
  c.beginPath(); c.moveTo(18, 9); c.lineTo(23, 24); c.lineTo(18, 20); c.lineTo(13, 24); c.closePath(); c.fill();
  c.textAlign = "center"; c.fillText("N", 18, 38); c.textAlign = "start";
}

/* The background map: only in pages that were made with one, only when switched on. */
const tiles = new Map();
function drawBackground(world, map, view) {
  const c = map.context, w = map.canvas.clientWidth, h = map.canvas.clientHeight, { frame, background } = world.model.data;
  const side = view.k / frame.perUnit;
  const z = Math.max(0, Math.min(background.maxZoom, Math.round(Math.log2(side / 256))));
  const n = 2 ** z, size = side / n;
  const left = frame.west * side - view.x, top = frame.north * side - view.y;
  for (let x = Math.floor(left / size); x * size < left + w; x++) for (let y = Math.max(0, Math.floor(top / size)); y < n && y * size < top + h; y++) {
    const url = background.url.replace("{z}", z).replace("{x}", ((x % n) + n) % n).replace("{y}", y);
    let image = tiles.get(url);
    if (!image) { image = new Image(); image.onload = () => world.redraw(); image.src = url; tiles.set(url, image); }
    if (image.complete && image.naturalWidth) c.drawImage(image, x * size - left, y * size - top, size + 0.5, size + 0.5);
  }
}
