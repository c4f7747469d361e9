/* Draws the map of areas with a pen: colours, hatching, arrows between places, and their names. */

import { contains } from "./columns.mjs";
import { flowsBetween, sumsAt } from "./estimate.mjs";
import { NOWHERE } from "./model.mjs";
import { arrowOf, paintGround, paintScale } from "./paint.mjs";
import { queryOf } from "./question.mjs";

/* Arrows at rest, classes of colour, pixels between hatches, and names on a map. */
const MOST_ARROWS = 15;
const SHADES = 6;
const HATCH = 7;
const MOST_NAMES = 24;

/* ---- what is drawn ---- */

/* The value of each area for a question: what starts and ends there, or its part of the answer. */
export function valuesOf(model, state, counted = false) {
  const query = { ...queryOf(state), counted };
  if (!state.a) {
    const ends = sumsAt(model, query, "origin");
    const other = sumsAt(model, query, "destination");
    return ends.map((v, i) => v + other[i]);
  }
  const away = sumsAt(
    model,
    { ...query, ...(state.way === "to" ? { from: null } : { to: null }) },
    state.way === "to" ? "origin" : "destination",
  );
  if (state.way !== "between") return away;
  const back = sumsAt(
    model,
    { from: null, to: state.a.mask, hour: state.hour, counted },
    "origin",
  );
  return away.map((v, i) => v + back[i]);
}

export function answerScene(world) {
  const { model, state } = world;
  const key = JSON.stringify([
    state.way,
    state.a?.areas,
    state.b?.areas,
    state.hour,
    state.each,
  ]);
  if (world.drawn?.key === key) return world.drawn;
  const values = valuesOf(model, state);
  const trips =
    model.answer.basis === "trips" ? values : valuesOf(model, state, true);
  const k = model.answer.k ?? 0;
  /* One scale for all hours, unless each hour is to have its own. */
  const scaled =
    state.hour === null || state.each
      ? values
      : model.times.flatMap((hour) => [...valuesOf(model, { ...state, hour })]);
  const query = queryOf(state);
  const back = { from: query.to, to: query.from, hour: state.hour };
  let arrows = flowsBetween(model, query, MOST_ARROWS).map((flow) => ({
    ...flow,
    way: state.a ? (state.way === "to" ? "to" : "from") : "from",
  }));
  if (state.way === "between" && state.a)
    arrows = [
      ...arrows,
      ...flowsBetween(model, back, MOST_ARROWS).map((flow) => ({
        ...flow,
        way: "to",
      })),
    ]
      .sort((a, b) => b.trips - a.trips)
      .slice(0, MOST_ARROWS);
  world.drawn = {
    key,
    values,
    told: trips.map((v) => (v >= k ? 1 : 0)),
    limits: shadeLimits(scaled, model.answer.basis === "trips" ? k : 0),
    arrows,
  };
  return world.drawn;
}

/* Limits of classes that people can read, in equal steps of the logarithm: the lowest class has a sixth of the areas, the
   highest those near the largest value. */
export function shadeLimits(values, least) {
  const told = [...values]
    .filter((v) => v >= Math.max(least, 1e-9))
    .sort((a, b) => a - b);
  if (!told.length) return [];
  const low = told[Math.floor(told.length / SHADES)];
  const high = told[Math.ceil(told.length * 0.995) - 1] / 1.8;
  const step = (high / low) ** (1 / (SHADES - 2));
  const limits = Array.from({ length: SHADES - 1 }, (_, i) =>
    roundTo125(low * step ** i),
  ).filter((v) => v > told[0] && v <= told[told.length - 1]);
  return [...new Set(limits)].sort((a, b) => a - b);
}
const roundTo125 = (v) => {
  const power = 10 ** Math.floor(Math.log10(v));
  return +[1, 1.5, 2, 3, 4, 5, 7, 10]
    .map((m) => m * power)
    .reduce((a, b) =>
      Math.abs(Math.log(b / v)) < Math.abs(Math.log(a / v)) ? b : a,
    )
    .toPrecision(3);
};
const shadeOf = (limits, v) => {
  let c = 0;
  while (c < limits.length && v >= limits[c]) c++;
  return c;
};
const tintOf = (palette, limits, c) =>
  palette.flow[
    limits.length ? Math.round((c * (SHADES - 1)) / limits.length) : SHADES - 2
  ];

/* ---- drawing ---- */

export function paintAnswer(pen, world, view, width, height) {
  const { palette } = world;
  const scene = answerScene(world);
  const frame = { ...world, view, width, height };
  pen.rect(0, 0, width, height, { fill: palette.land });
  paintGround(pen, world, view, width, height);
  paintAreas(pen, frame, scene);
  paintChoices(pen, frame);
  paintArrows(pen, frame, scene);
  paintPlaces(pen, frame, scene);
  paintScale(
    pen,
    { model: { data: world.model.data }, palette },
    view,
    width,
    height,
  );
}

const inView = (shape, { view, width, height }) =>
  shape &&
  view.x + view.k * shape.east > 0 &&
  view.x + view.k * shape.west < width &&
  view.y + view.k * shape.south > 0 &&
  view.y + view.k * shape.north < height;

function paintAreas(pen, frame, { values, told, limits }) {
  const { model, palette, view } = frame;
  const faint = { stroke: palette.land, width: 0.8 };
  for (let area = 0; area < model.n; area++) {
    if (!(values[area] > 0)) continue;
    const shape = model.outlines.shape(area);
    if (!inView(shape, frame)) continue;
    if (told[area]) {
      pen.shape(shape, view, {
        fill: tintOf(palette, limits, shadeOf(limits, values[area])),
        alpha: 0.92,
      });
      pen.shape(shape, view, faint);
    } else hatch(pen, shape, view, palette.outline);
  }
}

/* Diagonals through a shape, continuous from area to area. */
function hatch(pen, shape, view, stroke) {
  const corners = shape.lines.map((xy) =>
    Array.from({ length: xy.length / 2 }, (_, i) => [
      view.x + view.k * xy[2 * i],
      view.y + view.k * xy[2 * i + 1],
    ]),
  );
  const sums = corners.flat().map(([x, y]) => x + y);
  const low = Math.min(...sums);
  const high = Math.max(...sums);
  if (high - low > 4000) return;
  for (let c = Math.ceil(low / HATCH) * HATCH; c < high; c += HATCH) {
    const cuts = [];
    for (const ring of corners) {
      for (let i = 0, j = ring.length - 1; i < ring.length; j = i++) {
        const a = ring[j];
        const b = ring[i];
        const s = a[0] + a[1] - c;
        const e = b[0] + b[1] - c;
        if (s > 0 !== e > 0) {
          const u = s / (s - e);
          cuts.push(a[0] + u * (b[0] - a[0]));
        }
      }
    }
    cuts.sort((a, b) => a - b);
    for (let i = 0; i + 1 < cuts.length; i += 2)
      pen.line(
        [
          [cuts[i], c - cuts[i]],
          [cuts[i + 1], c - cuts[i + 1]],
        ],
        { stroke, width: 0.6, alpha: 0.55 },
      );
  }
  pen.shape(shape, view, { stroke, width: 0.5, alpha: 0.5 });
}

function paintChoices(pen, frame) {
  const { model, state, palette, view } = frame;
  for (const [choice, colour] of [
    [state.b, palette.to],
    [state.a, palette.from],
  ]) {
    for (const area of choice?.areas ?? []) {
      const shape = model.outlines.shape(area);
      if (inView(shape, frame))
        pen.shape(shape, view, { stroke: colour, width: 2.2 });
    }
  }
  const near = frame.hover === null ? null : model.outlines.shape(frame.hover);
  if (near) pen.shape(near, view, { stroke: palette.ink, width: 1.4 });
  if (frame.lasso)
    pen.line(frame.lasso, { stroke: palette.from, width: 1.5, dash: [4, 3] });
}

const spotOf = ({ model, view }, place) =>
  model.placeX[place] === NOWHERE
    ? null
    : [
        view.x + view.k * model.placeX[place],
        view.y + view.k * model.placeY[place],
      ];

function paintArrows(pen, frame, { arrows }) {
  const { palette } = frame;
  const most = arrows[0]?.trips || 1;
  for (const { from, to, trips, way } of [...arrows].reverse()) {
    const a = spotOf(frame, from);
    const b = spotOf(frame, to);
    if (!a || !b || Math.hypot(a[0] - b[0], a[1] - b[1]) < 8) continue;
    const width = Math.max(1.2, (13 * trips) / most);
    pen.polygon(arrowOf({ a, b, ra: 5, rb: 5 }, width), {
      fill: palette[way],
      stroke: palette.land,
      width: 0.8,
      alpha: 0.45 + 0.45 * (trips / most),
    });
  }
}

/* Dots and names: those of the question first, then the largest; none on another. */
function paintPlaces(pen, frame, { arrows }) {
  const { model, state, palette, volume, width, height } = frame;
  const own = [state.a?.place, state.b?.place].filter(
    (place) => place !== null && place !== undefined,
  );
  const shown = [
    ...new Set([
      ...own,
      ...arrows.slice(0, 8).flatMap(({ from, to }) => [from, to]),
    ]),
  ];
  const rest = [...volume.keys()]
    .sort((a, b) => volume[b] - volume[a])
    .slice(0, 200);
  const boxes = [];
  const free = (box) =>
    !boxes.some(
      (t) =>
        t.west < box.east &&
        t.east > box.west &&
        t.north < box.south &&
        t.south > box.north,
    );
  const most = width < 500 ? 10 : MOST_NAMES;
  for (const place of [
    ...shown,
    ...rest.filter((one) => !shown.includes(one)),
  ]) {
    if (boxes.length >= most) break;
    const spot = spotOf(frame, place);
    if (
      !spot ||
      spot[0] < 4 ||
      spot[0] > width - 4 ||
      spot[1] < 4 ||
      spot[1] > height - 4
    )
      continue;
    const bold = shown.includes(place);
    const size = bold ? 13.5 : 11.5;
    const wide = pen.widthOf(model.name[place], size, bold);
    const box = [
      [spot[0] + 7, spot[1]],
      [spot[0] - wide - 7, spot[1]],
      [spot[0] - wide / 2, spot[1] - 14],
      [spot[0] - wide / 2, spot[1] + 14],
    ]
      .map(([west, middle]) => ({
        west,
        east: west + wide,
        north: middle - 8,
        south: middle + 8,
        middle,
      }))
      .find((one) => one.west > 2 && one.east < width - 2 && free(one));
    if (!box) continue;
    boxes.push({ ...box, west: box.west - 5, east: box.east + 5 });
    pen.circle(spot[0], spot[1], bold ? 3.4 : 2.6, {
      fill: palette.land,
      stroke: palette.ink,
      width: 1.6,
    });
    pen.text(box.west, box.middle, model.name[place], {
      size,
      bold,
      fill: palette.ink,
      halo: palette.land,
    });
  }
}

/* ---- the legend ---- */

/* The classes of the map: colour and lower limit, the lowest first. */
export function legendClasses(world) {
  const { model, palette, number, brief } = world;
  const { limits } = answerScene(world);
  const { k, basis } = model.answer;
  return Array.from({ length: limits.length + 1 }, (_, c) => ({
    colour: tintOf(palette, limits, c),
    words: c ? brief(limits[c - 1]) : k && basis === "trips" ? number(k) : "",
  }));
}
/* The legend drawn with a pen, from its left end. */
export function paintLegendOfAreas(pen, world, x, y) {
  const { model, palette, state, t, number } = world;
  const soft = { size: 11, fill: palette.soft };
  const title = t(state.a ? "legend_part" : "legend_ends");
  pen.text(x, y, title, soft);
  let at = x + pen.widthOf(title, 11) + 16;
  for (const { colour, words } of legendClasses(world)) {
    pen.rect(at, y - 8, 44, 9, { fill: colour });
    pen.text(at, y + 9, words, { ...soft, size: 10 });
    at += 44;
  }
  const { k } = model.answer;
  if (!k) return;
  const box = [0, 22, 22, 0].map((dx, i) => [
    at + 16 + dx,
    y - 8 + 9 * (i >> 1),
  ]);
  hatch(pen, { lines: [box.flat()] }, { x: 0, y: 0, k: 1 }, palette.outline);
  pen.text(at + 46, y, t("hatched", { k: number(k) }), soft);
}

export function fillLegend(world, box, make) {
  const { model, t, number } = world;
  const swatches = make("div", "", "swatches");
  const { k } = model.answer;
  box.textContent = "";
  box.append(
    make("span", t(world.state.a ? "legend_part" : "legend_ends"), "soft"),
  );
  for (const { colour, words } of legendClasses(world)) {
    const one = make("span", "", "swatch");
    const tint = make("i");
    tint.style.background = colour;
    one.append(tint, make("small", words));
    swatches.append(one);
  }
  box.append(swatches);
  if (k)
    box.append(
      make("i", "", "hatched"),
      make("span", t("hatched", { k: number(k) }), "soft"),
    );
}

/* The box of the areas with the middle 97 % of the trip ends in each direction. */
export function extentOfAreas({ model }) {
  const all = { from: null, to: null, hour: null };
  const ends = sumsAt(model, all, "origin");
  const other = sumsAt(model, all, "destination");
  const weight = ends.map((v, i) => v + other[i]);
  const bounds = (values) => {
    const placed = [...values.keys()]
      .filter((i) => values[i] !== NOWHERE && weight[i] > 0)
      .sort((a, b) => values[a] - values[b]);
    const total = placed.reduce((sum, i) => sum + weight[i], 0);
    let sum = 0;
    let low = null;
    let high = null;
    for (const i of placed) {
      sum += weight[i];
      if (low === null && sum >= 0.015 * total) low = values[i];
      if (high === null && sum >= 0.985 * total) high = values[i];
    }
    return [low ?? 0, high ?? 1];
  };
  const [west, east] = bounds(model.x);
  const [north, south] = bounds(model.y);
  return {
    west,
    east: Math.max(east, west + 1),
    north,
    south: Math.max(south, north + 1),
  };
}

/* The area under a point, the smallest where areas lie in others. */
export function areaUnder(world, px, py) {
  const { model, view } = world;
  const x = (px - view.x) / view.k;
  const y = (py - view.y) / view.k;
  let best = null;
  let least = Infinity;
  for (let area = 0; area < model.n; area++) {
    const shape = model.outlines.shape(area);
    if (
      !shape ||
      x < shape.west ||
      x > shape.east ||
      y < shape.north ||
      y > shape.south
    )
      continue;
    const size = (shape.east - shape.west) * (shape.south - shape.north);
    if (size < least && contains(shape, x, y)) {
      best = area;
      least = size;
    }
  }
  return best;
}
/* The areas whose middle lies in a polygon of pixels. */
export function areasWithin(world, points) {
  const { model, view } = world;
  const ring = {
    lines: [points.flat()],
    west: -Infinity,
    east: Infinity,
    north: -Infinity,
    south: Infinity,
  };
  const { values } = answerScene(world);
  return [...values.keys()].filter(
    (area) =>
      model.x[area] !== NOWHERE &&
      contains(
        ring,
        view.x + view.k * model.x[area],
        view.y + view.k * model.y[area],
      ),
  );
}
