/* Draws one map on its canvas. `world` is what all maps of a page share: data, shapes, scale, palette and view. */

import { drawLines, drawTowns } from "./context.mjs";
import { degreesOf, pathOf } from "./geometry.mjs";

/* A map that takes longer to draw is moved as a picture, and drawn again when it rests. */
const SLOW = 24;

/* The view is kept relative to the fitted one, so that maps of different sizes move together. */
export function viewOf(world, map) {
  const { clientWidth: w, clientHeight: h } = map.canvas;
  const f = world.fitted;
  const { zoom, dx, dy } = world.view;
  const base = Math.min(w / (f.width * 1.08), h / (f.height * 1.08));
  const k = base * zoom;
  return {
    k,
    x: w / 2 - k * (f.west + f.width / 2 + dx * f.width),
    y: h / 2 - k * (f.north + f.height / 2 + dy * f.height),
  };
}
export const visible = (map, view) => {
  const west = -view.x / view.k;
  const north = -view.y / view.k;
  const east = west + map.canvas.clientWidth / view.k;
  const south = north + map.canvas.clientHeight / view.k;
  return (s) =>
    s.east >= west && s.west <= east && s.south >= north && s.north <= south;
};

export function draw(world, map) {
  const { canvas, context: c } = map;
  const w = canvas.clientWidth;
  const h = canvas.clientHeight;
  if (!w || !h || !world.data.frame) return;
  const printed = document.documentElement.classList.contains("printing");
  if (world.maps.length > 12 && !printed) {
    /* A page of many maps draws those in sight. */
    const box = canvas.getBoundingClientRect();
    if (box.bottom < -300 || box.top > innerHeight + 300) return;
  }
  const density = Math.max(window.devicePixelRatio || 1, printed ? 3 : 1);
  if (
    canvas.width !== Math.round(w * density) ||
    canvas.height !== Math.round(h * density)
  ) {
    canvas.width = Math.round(w * density);
    canvas.height = Math.round(h * density);
    map.drawn = null;
  }
  const view = viewOf(world, map);
  if (world.moving && map.drawn && map.drawn.cost > SLOW && !printed) {
    moveAsPicture(world, map, view, density);
    return;
  }
  const began = performance.now();
  /* What is in view, in degrees: west, south, east, north. */
  canvas.dataset.view = [
    ...toDegrees(world, view, 0, h).reverse(),
    ...toDegrees(world, view, w, 0).reverse(),
  ]
    .map((v) => v.toFixed(6))
    .join();
  const pen = {
    toUnits: () =>
      c.setTransform(
        density * view.k,
        0,
        0,
        density * view.k,
        density * view.x,
        density * view.y,
      ),
    toPixels: () => c.setTransform(density, 0, 0, density, 0, 0),
  };
  pen.toPixels();
  c.globalAlpha = 1;
  c.fillStyle = world.palette.map;
  c.fillRect(0, 0, w, h);
  drawLines(world, map, view, pen);
  drawAreas(world, map, view, pen);
  drawTowns(world, map, view, pen);
  drawScaleBar(world, map, view);
  if (canvas === document.activeElement && canvas.matches(":focus-visible")) {
    c.strokeStyle = world.palette.focus;
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(w / 2 - 12, h / 2);
    c.lineTo(w / 2 + 12, h / 2);
    c.moveTo(w / 2, h / 2 - 12);
    c.lineTo(w / 2, h / 2 + 12);
    c.stroke();
  }
  map.drawn = {
    view,
    width: w,
    height: h,
    cost: performance.now() - began,
    picture: null,
  };
}

function moveAsPicture(world, map, view, density) {
  const { canvas, context: c, drawn } = map;
  if (!drawn.picture) {
    drawn.picture = document.createElement("canvas");
    drawn.picture.width = canvas.width;
    drawn.picture.height = canvas.height;
    drawn.picture.getContext("2d").drawImage(canvas, 0, 0);
  }
  const factor = view.k / drawn.view.k;
  c.setTransform(1, 0, 0, 1, 0, 0);
  c.globalAlpha = 1;
  c.fillStyle = world.palette.map;
  c.fillRect(0, 0, canvas.width, canvas.height);
  c.drawImage(
    drawn.picture,
    density * (view.x - factor * drawn.view.x),
    density * (view.y - factor * drawn.view.y),
    canvas.width * factor,
    canvas.height * factor,
  );
}

/* Areas of one layer in the colours of its scale; overlapping ones are in order, large ones first. */
function drawAreas(world, map, view, pen) {
  const c = map.context;
  const layer = world.data.layers[map.layer];
  const s = world.scale.of[map.layer];
  const seen = visible(map, view);
  pen.toUnits();
  c.strokeStyle = world.palette.outline;
  layer.shape.forEach((n, i) => {
    const shape = world.shapes[n];
    if (!shape || s.classes[i] < 0 || !seen(shape)) return;
    const wide = (shape.east - shape.west) * view.k;
    c.globalAlpha = layer.overlap ? 0.85 : 1;
    c.fillStyle = s.colours[s.classes[i]];
    c.lineWidth = (wide < 9 ? 0.35 : 0.8) / view.k;
    c.fill(pathOf(shape));
    if (wide > 4) c.stroke(pathOf(shape));
  });
  c.globalAlpha = 1;
  const hovered = world.shapes[layer.shape[map.hover]];
  if (hovered) {
    c.strokeStyle = world.palette.ink;
    c.lineWidth = 1.6 / view.k;
    c.stroke(pathOf(hovered));
  }
  pen.toPixels();
  layer.shape.forEach((n, i) => {
    if (n >= 0 || s.classes[i] < 0 || layer.x[i] === null) return;
    c.fillStyle = s.colours[s.classes[i]];
    c.strokeStyle = world.palette.outline;
    c.lineWidth = 0.8;
    c.beginPath();
    c.arc(view.x + view.k * layer.x[i], view.y + view.k * layer.y[i], 4, 0, 7);
    c.fill();
    c.stroke();
  });
}

const toDegrees = (world, view, px, py) =>
  degreesOf(world.data.frame, (px - view.x) / view.k, (py - view.y) / view.k);

/* How many metres a pixel is, at the middle of the map; north is up. */
function drawScaleBar(world, map, view) {
  const c = map.context;
  const { clientWidth: w, clientHeight: h } = map.canvas;
  const { palette } = world;
  const [lat] = toDegrees(world, view, w / 2, h / 2);
  const metres =
    (40075017 * Math.cos((lat * Math.PI) / 180) * world.data.frame.perUnit) /
    view.k;
  const raw = metres * 90;
  const power = 10 ** Math.floor(Math.log10(raw));
  const length = [1, 2, 5]
    .map((m) => m * power)
    .filter((m) => m <= raw)
    .pop();
  const px = length / metres;
  const text = length >= 1000 ? length / 1000 + " km" : length + " m";
  c.font = "12px system-ui, sans-serif";
  c.globalAlpha = 0.82;
  c.fillStyle = palette.map;
  c.fillRect(6, h - 30, Math.max(px, c.measureText(text).width) + 34, 24);
  c.globalAlpha = 1;
  c.strokeStyle = palette.ink;
  c.lineWidth = 1.5;
  c.beginPath();
  c.moveTo(13, h - 15);
  c.lineTo(13, h - 11);
  c.lineTo(13 + px, h - 11);
  c.lineTo(13 + px, h - 15);
  c.stroke();
  c.fillStyle = palette.ink;
  c.fillText(text, 14, h - 17);
  c.fillText("N ↑", 19 + px, h - 12);
}
