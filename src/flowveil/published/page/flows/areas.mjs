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

export function fillLegend(world, box, make) {
  const { model, palette, t, number, brief } = world;
  const { limits } = answerScene(world);
  const swatches = make("div", "", "swatches");
  const k = model.answer.k;
  box.textContent = "";
  box.append(
    make("span", t(world.state.a ? "legend_part" : "legend_ends"), "soft"),
  );
  for (let c = 0; c <= limits.length; c++) {
    const one = make("span", "", "swatch");
    const tint = make("i");
    tint.style.background = tintOf(palette, limits, c);
    one.append(
      tint,
      make(
        "small",
        c
          ? brief(limits[c - 1])
          : k && model.answer.basis === "trips"
            ? number(k)
            : "",
      ),
    );
    swatches.append(one);
  }
  box.append(swatches);
  if (k)
    box.append(
      make("i", "", "hatched"),
      make("span", t("hatched", { k: number(k) }), "soft"),
    );
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
