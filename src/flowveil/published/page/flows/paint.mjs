/* Draws the map with a pen: land and water, outlines, flows, circles, names, the scale bar and north. */

import { levelFor } from "./clusters.mjs";
import { exact, shownVolumes, sumsBetween } from "./model.mjs";

/* Pixels between clusters, flows that are drawn, the widest line and the largest circle. */
const APART = 46;
const MOST_LINES = 600;
const WIDEST = 11;
const LARGEST = 15;
const HUES = 6;

/* The colours of the page's style sheet, light or dark. */
export function paletteOf(element) {
  const css = getComputedStyle(element);
  const read = (name) => css.getPropertyValue(`--${name}`).trim();
  const names = [
    "ink",
    "paper",
    "soft",
    "land",
    "water",
    "river",
    "border",
    "outline",
    "dot",
    "mark",
    "focus",
    "chosen",
  ];
  return {
    ...Object.fromEntries(names.map((name) => [name, read(name)])),
    flow: Array.from({ length: HUES }, (_, i) => read(`flow-${i + 1}`)),
  };
}

/* ---- where things are ---- */

/* The view that holds a box in a rectangle of pixels. */
export function fitted(box, width, height) {
  const k = Math.min(
    width / (1.12 * (box.east - box.west)),
    height / (1.12 * (box.south - box.north)),
  );
  return {
    k,
    x: width / 2 - (k * (box.west + box.east)) / 2,
    y: height / 2 - (k * (box.north + box.south)) / 2,
  };
}

/* Latitude and longitude of a point in units of the frame. */
export function degreesAt(frame, ux, uy) {
  const x = frame.west + ux * frame.perUnit;
  const y = frame.north + uy * frame.perUnit;
  return [
    (Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180) / Math.PI,
    ((((x * 360 - 180 + 540) % 360) + 360) % 360) - 180,
  ];
}

/* What a view shows: its level of clusters, the sums between them, the lines and circles in sight with their sizes. */
export function sceneOf(world, view, width, height) {
  const { model, state } = world;
  const number = levelFor(model.levels, APART / view.k);
  const level = model.levels[number];
  const key = [
    number,
    state.basis,
    JSON.stringify(state.key),
    state.hour,
    state.chosen?.id ?? 0,
  ].join();
  if (world.sums?.key !== key) {
    world.volumes =
      world.volumes?.key === key.slice(key.indexOf(","))
        ? world.volumes
        : { key: key.slice(key.indexOf(",")), of: shownVolumes(model, state) };
    world.sums = {
      key,
      ...sumsBetween(model, level, world.volumes.of, state.chosen?.mask),
    };
  }
  const sums = world.sums;
  const margin = 60;
  /** @type {(c: number) => [number, number]} */
  const xy = (c) => [
    view.x + view.k * level.x[c],
    view.y + view.k * level.y[c],
  ];
  const inSight = ([x, y]) =>
    x > -margin && x < width + margin && y > -margin && y < height + margin;
  let mostAt = 1e-9;
  for (let c = 0; c < level.x.length; c++)
    mostAt = Math.max(mostAt, sums.starts[c] + sums.ends[c]);
  const radius = (c) =>
    sums.starts[c] + sums.ends[c] <= 0
      ? 0
      : 2 + (LARGEST - 2) * Math.sqrt((sums.starts[c] + sums.ends[c]) / mostAt);
  const circles = [];
  for (let c = 0; c < level.x.length; c++) {
    const at = xy(c);
    const r = radius(c);
    if (r && inSight(at)) circles.push({ cluster: c, x: at[0], y: at[1], r });
  }
  circles.sort((a, b) => b.r - a.r || a.cluster - b.cluster);
  const lines = [];
  /* Around the whole world the shorter way may cross the edge of the map: such flows are not drawn. */
  const half = 0.5 / ((model.data.frame?.perUnit ?? 1) / view.k);
  for (const i of sums.order) {
    if (lines.length >= MOST_LINES || sums.sum[i] <= 0) break;
    const a = xy(sums.from[i]);
    const b = xy(sums.to[i]);
    if ((inSight(a) || inSight(b)) && Math.abs(a[0] - b[0]) < half)
      lines.push({
        flow: i,
        from: sums.from[i],
        to: sums.to[i],
        volume: sums.sum[i],
        a,
        b,
        ra: radius(sums.from[i]),
        rb: radius(sums.to[i]),
      });
  }
  /* Widths are relative to the widest line in sight, as the legend says. */
  const most = lines.length ? lines[0].volume : sums.most;
  return {
    number,
    level,
    sums,
    circles,
    lines,
    most,
    widthOf: (v) => Math.max(0.7, (WIDEST * v) / most),
  };
}

/* An arrow of some width along an arc that bends to the right of the way: there and back are two arcs. */
const BEND = 0.16;
const piecesOf = (length) => Math.max(8, Math.min(64, Math.round(length / 14)));
export function arrowOf(line, width) {
  const [x0, y0] = line.a;
  const [x1, y1] = line.b;
  const length = Math.hypot(x1 - x0, y1 - y0) || 1;
  const bx = (x0 + x1) / 2 - BEND * (y1 - y0);
  const by = (y0 + y1) / 2 + BEND * (x1 - x0);
  /* A point of the arc and its normal. */
  const at = (t) => {
    const u = 1 - t;
    const dx = 2 * u * (bx - x0) + 2 * t * (x1 - bx);
    const dy = 2 * u * (by - y0) + 2 * t * (y1 - by);
    const d = Math.hypot(dx, dy) || 1;
    return {
      x: u * u * x0 + 2 * u * t * bx + t * t * x1,
      y: u * u * y0 + 2 * u * t * by + t * t * y1,
      nx: -dy / d,
      ny: dx / d,
    };
  };
  const start = Math.min(line.ra / length, 0.4);
  const stop = Math.max(1 - (line.rb + 1) / length, 0.6);
  const neck = Math.max((start + stop) / 2, stop - (4 + 1.6 * width) / length);
  const half = width / 2;
  const wing = Math.max(half, Math.min(2 + 1.05 * width, 0.22 * length));
  const side = (p, aside) => [p.x + p.nx * aside, p.y + p.ny * aside];
  const right = [];
  const left = [];
  const pieces = piecesOf(length);
  for (let i = 0; i <= pieces; i++) {
    const p = at(start + ((neck - start) * i) / pieces);
    right.push(side(p, half));
    left.push(side(p, -half));
  }
  const tip = at(stop);
  const end = at(neck);
  return [
    ...right,
    side(end, wing),
    [tip.x, tip.y],
    side(end, -wing),
    ...left.reverse(),
  ];
}
/* How far a point is from the arc of a flow, by its chords. */
function distanceTo(line, px, py) {
  const [x0, y0] = line.a;
  const [x1, y1] = line.b;
  const bx = (x0 + x1) / 2 - BEND * (y1 - y0);
  const by = (y0 + y1) / 2 + BEND * (x1 - x0);
  let least = Infinity;
  let x = x0;
  let y = y0;
  const pieces = piecesOf(Math.hypot(x1 - x0, y1 - y0));
  for (let i = 1; i <= pieces; i++) {
    const t = i / pieces;
    const u = 1 - t;
    const nx = u * u * x0 + 2 * u * t * bx + t * t * x1;
    const ny = u * u * y0 + 2 * u * t * by + t * t * y1;
    const dx = nx - x;
    const dy = ny - y;
    const along = Math.min(
      1,
      Math.max(0, ((px - x) * dx + (py - y) * dy) / (dx * dx + dy * dy || 1)),
    );
    least = Math.min(
      least,
      Math.hypot(px - x - along * dx, py - y - along * dy),
    );
    x = nx;
    y = ny;
  }
  return least;
}

/* ---- drawing ---- */

export function paintMap(pen, world, view, width, height, scene) {
  const { palette } = world;
  pen.rect(0, 0, width, height, { fill: palette.land });
  paintGround(pen, world, view, width, height);
  paintZones(pen, world, view, scene);
  paintFlows(pen, world, scene);
  paintNames(pen, world, view, width, height, scene);
  paintScale(pen, world, view, width, height);
}

export function paintGround(pen, world, view, width, height) {
  const { ground, palette, state } = world;
  if (state.background && world.tiles) {
    world.tiles(pen, view, width, height);
  } else if (ground) {
    const each = (packed, style, closed) => {
      for (let i = 0; i < packed.count; i++) {
        const shape = packed.shape(i);
        if (shape && seen(shape, view, width, height))
          pen.shape(shape, view, style, closed);
      }
    };
    each(ground.water, { fill: palette.water }, true);
    each(ground.rivers, { stroke: palette.river, width: 1.4 }, false);
    each(
      ground.borders,
      { stroke: palette.border, width: 1, dash: [5, 3] },
      false,
    );
  }
  if (ground)
    for (let i = 0; i < ground.ownLines.count; i++) {
      const shape = ground.ownLines.shape(i);
      if (shape)
        pen.shape(shape, view, { stroke: palette.border, width: 1 }, false);
    }
}

const seen = (shape, view, width, height) =>
  view.x + view.k * shape.east > 0 &&
  view.x + view.k * shape.west < width &&
  view.y + view.k * shape.south > 0 &&
  view.y + view.k * shape.north < height;

/* Outlines of zones that are wide enough to see, of those of the chosen place, and of the one below the pointer. */
function paintZones(pen, world, view, scene) {
  const { model, state, palette } = world;
  const { shape } = model.outlines;
  if (
    model.data.homogeneous &&
    scene.number < 4 &&
    model.code.length * view.k < 1e9
  ) {
    for (let zone = 0; zone < model.code.length; zone++) {
      const own = shape(zone);
      if (
        own &&
        (own.east - own.west) * view.k > 14 &&
        seen(own, view, world.width, world.height)
      )
        pen.shape(own, view, {
          stroke: palette.outline,
          width: 0.6,
          alpha: 0.7,
        });
    }
  }
  const marked = state.chosen ? state.chosen.zones.slice(0, 300) : [];
  for (const zone of marked) {
    const own = shape(zone);
    if (own)
      pen.shape(own, view, {
        fill: palette.chosen,
        alpha: Math.max(0.04, 0.25 / marked.length),
      });
  }
  for (const zone of marked) {
    const own = shape(zone);
    if (own)
      pen.shape(own, view, {
        stroke: palette.chosen,
        width: marked.length > 1 ? 0.7 : 2,
        alpha: 0.8,
      });
  }
  const near = state.hover?.cluster;
  if (near !== undefined && scene.level === state.hover.level) {
    const own = shape(scene.level.main[near]);
    if (own)
      pen.shape(own, view, {
        stroke: palette.ink,
        width: 1.4,
        dash: [4, 3],
        alpha: 0.8,
      });
  }
}

function paintFlows(pen, world, scene) {
  const { palette, state } = world;
  const hovered = state.hover?.flow;
  const colour = (v) =>
    palette.flow[
      Math.min(
        HUES - 1,
        Math.floor(HUES * Math.min(1, Math.max(v, 0) / scene.most) ** 0.45),
      )
    ];
  for (let n = scene.lines.length - 1; n >= 0; n--) {
    const line = scene.lines[n];
    const width = scene.widthOf(line.volume);
    const is = line.flow === hovered;
    const strong = Math.sqrt(line.volume / scene.most);
    pen.polygon(arrowOf(line, width), {
      fill: is ? palette.chosen : colour(line.volume),
      stroke: palette.land,
      width: is ? 1.5 : 0.6,
      alpha: is ? 1 : 0.4 + 0.55 * strong,
    });
  }
  for (const { cluster, x, y, r } of scene.circles) {
    const is = cluster === state.hover?.cluster;
    pen.circle(x, y, r, {
      fill: is ? palette.chosen : palette.dot,
      stroke: palette.land,
      width: 1,
      alpha: is ? 1 : 0.9,
    });
  }
}

/* Names of towns: the largest first, none on another, on a strong circle or at the edge; each has four places to be. */
function paintNames(pen, world, view, width, height, scene) {
  const { ground, palette, state } = world;
  if (!ground || state.background) return;
  const taken = scene.circles
    .slice(0, 40)
    .filter(({ r }) => r > 5)
    .map(({ x, y, r }) => ({
      west: x - r,
      east: x + r,
      north: y - r,
      south: y + r,
    }));
  const most = width < 500 ? 9 : 26;
  const names = [];
  const clear = (boxes, box) =>
    !boxes.some(
      (t) =>
        t.west < box.east &&
        t.east > box.west &&
        t.north < box.south &&
        t.south > box.north,
    );
  const apart = (box) =>
    box.west > 2 &&
    box.east < width - 2 &&
    box.north > 2 &&
    box.south < height - 2 &&
    clear(names, box);
  const free = (box) => apart(box) && clear(taken, box);
  let placed = 0;
  for (const [words, ux, uy, own] of [
    ...ground.ownNames.map((name) => [...name, true]),
    ...ground.towns,
  ]) {
    const x = view.x + view.k * ux;
    const y = view.y + view.k * uy;
    if (x < 0 || x > width || y < 0 || y > height) continue;
    const bold = placed < 3 && !own;
    const size = bold ? 14 : 11.5;
    const wide = pen.widthOf(words, size, bold);
    const tall = size * 0.62;
    const boxes = [
      [x + 5, y],
      [x - wide - 5, y],
      [x - wide / 2, y - 13],
      [x - wide / 2, y + 13],
      [x - wide / 2, y - 24],
      [x - wide / 2, y + 24],
    ].map(([west, middle]) => ({
      west,
      east: west + wide,
      north: middle - tall,
      south: middle + tall,
      middle,
    }));
    /* The largest towns are named, even on a circle. */
    const box = boxes.find(free) ?? (bold && apart(boxes[3]) ? boxes[3] : null);
    if (!box) continue;
    names.push({ ...box, west: box.west - 6, east: box.east + 6 });
    pen.text(box.west, box.middle, words, {
      size,
      bold,
      fill: palette.ink,
      halo: palette.land,
    });
    if (++placed >= most) break;
  }
}

/* A bar of a round length, and north, which is up. */
export function paintScale(pen, world, view, width, height) {
  const { frame } = world.model.data;
  const { palette } = world;
  const middle = frame.north + ((height / 2 - view.y) / view.k) * frame.perUnit;
  const metres =
    (40075017 *
      Math.cos(Math.atan(Math.sinh(Math.PI * (1 - 2 * middle)))) *
      frame.perUnit) /
    view.k;
  const raw = metres * 110;
  const power = 10 ** Math.floor(Math.log10(raw));
  const length = [1, 2, 5]
    .map((m) => m * power)
    .filter((m) => m <= raw)
    .pop();
  const px = length / metres;
  const x = width - px - 42;
  const y = height - 14;
  const words = length >= 1000 ? `${length / 1000} km` : `${length} m`;
  pen.line(
    [
      [x, y - 5],
      [x, y],
      [x + px, y],
      [x + px, y - 5],
    ],
    { stroke: palette.land, width: 4 },
  );
  pen.line(
    [
      [x, y - 5],
      [x, y],
      [x + px, y],
      [x + px, y - 5],
    ],
    { stroke: palette.ink, width: 1.4 },
  );
  pen.text(x + px / 2, y - 9, words, {
    size: 11,
    fill: palette.ink,
    halo: palette.land,
    anchor: "middle",
  });
  pen.polygon(
    [
      [width - 20, y - 16],
      [width - 15, y],
      [width - 20, y - 4],
      [width - 25, y],
    ],
    { fill: palette.ink, stroke: palette.land, width: 1 },
  );
  pen.text(width - 20, y - 22, "N", {
    size: 11,
    bold: true,
    fill: palette.ink,
    halo: palette.land,
    anchor: "middle",
  });
}

/* ---- what lies under a point ---- */

/* The cross in the middle of a map that has the keyboard. */
export function paintCross(pen, palette, width, height) {
  const x = width / 2;
  const y = height / 2;
  const drawn = { stroke: palette.focus, width: 2 };
  // prettier-ignore
  pen.line([[x - 12, y], [x + 12, y]], drawn);
  // prettier-ignore
  pen.line([[x, y - 12], [x, y + 12]], drawn);
}

export function circleAt(scene, px, py) {
  let best = null;
  let least = Infinity;
  for (const circle of scene.circles) {
    const d = Math.hypot(circle.x - px, circle.y - py) - Math.max(circle.r, 7);
    if (d <= 0 && d + circle.r < least) {
      least = d + circle.r;
      best = circle;
    }
  }
  return best;
}
export function lineAt(scene, px, py) {
  let best = null;
  let least = 4;
  for (const line of scene.lines) {
    const [x0, y0] = line.a;
    const [x1, y1] = line.b;
    const reach = 0.3 * Math.hypot(x1 - x0, y1 - y0) + 8;
    if (
      px < Math.min(x0, x1) - reach ||
      px > Math.max(x0, x1) + reach ||
      py < Math.min(y0, y1) - reach ||
      py > Math.max(y0, y1) + reach
    )
      continue;
    const d = distanceTo(line, px, py) - scene.widthOf(line.volume) / 2;
    if (d < least) {
      least = d;
      best = line;
    }
  }
  return best;
}

/* ---- the legend ---- */

/* Up to three round volumes whose widths tell the scale, none below the smallest flow. */
export function legendSteps({ most, lines }) {
  const round = (v) => {
    const power = 10 ** Math.floor(Math.log10(v));
    return [5, 2, 1].map((m) => m * power).find((s) => s <= v * 1.0001);
  };
  const least = lines.length ? lines[lines.length - 1].volume : 0;
  const steps = [most, most / 4, most / 16].filter((v) => v > 0).map(round);
  return [...new Set([steps[0], ...steps.filter((step) => step >= least)])];
}

export function paintLegend(pen, world, scene, x, y, unit) {
  const { palette } = world;
  let at = y;
  for (const step of legendSteps(scene)) {
    const width = scene.widthOf(step);
    const line = { a: [x, at + 2], b: [x + 54, at + 2], ra: 0, rb: 0 };
    pen.polygon(arrowOf(line, width), {
      fill: palette.flow[
        Math.min(HUES - 1, Math.floor(HUES * (step / scene.most) ** 0.45))
      ],
      stroke: palette.land,
      width: 0.5,
    });
    pen.text(x + 64, at + 5, `${exact(step)} ${unit}`, {
      size: 12,
      fill: palette.ink,
    });
    at += Math.max(19, width + 12);
  }
  return at;
}
