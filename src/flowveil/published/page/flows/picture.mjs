/* The picture of an answer: title, question, map, legend and source, drawn with a pen.

   The page draws it into its PNG and SVG files. `flowveil picture` runs this script without a browser and draws what the
   recording pen noted. */

import { extentOfAreas, paintAnswer, paintLegendOfAreas } from "./areas.mjs";
import { shapesOf } from "./columns.mjs";
import {
  estimateOf,
  rangeOf,
  rangeWords,
  roundedTo3,
  sumsAt,
  totalOf,
} from "./estimate.mjs";
import { fitted } from "./paint.mjs";
import { NOTHING, queryOf, stateOf } from "./question.mjs";

/* Pixels above the map, and below it without the lines about the source. */
const HEAD = 66;
const FOOT = 46;
const LINE = 20;
const MARGIN = 16;

/** What can be known of an answer without a window.
   @returns {any} */
export function worldOfAnswer(data) {
  const model = estimateOf(data);
  const { context } = data;
  const { language, texts } = data.answer;
  const plain = new Intl.NumberFormat(language, { maximumFractionDigits: 0 });
  const compact = new Intl.NumberFormat(language, {
    notation: "compact",
    maximumFractionDigits: 1,
  });
  const percents = new Intl.NumberFormat(language, {
    style: "percent",
    maximumFractionDigits: 0,
  });
  const all = { from: null, to: null, hour: null };
  const starts = sumsAt(model, all, "origin", model.place);
  const ends = sumsAt(model, all, "destination", model.place);
  return {
    model,
    state: { ...NOTHING, background: false },
    hover: null,
    lasso: null,
    volume: starts.map((v, i) => v + ends[i]),
    ground: context && {
      ...Object.fromEntries(
        ["water", "rivers", "borders", "ownLines"].map((name) => [
          name,
          shapesOf(context[name]),
        ]),
      ),
      towns: [],
      ownNames: [],
    },
    t: (key, values = {}) =>
      texts[key].replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole),
    number: (v) => plain.format(v),
    brief: (v) => (v < 10_000 ? plain : compact).format(v),
    percent: (v) => percents.format(v),
  };
}

export const headingOf = ({ model }) =>
  model.answer.headline ?? model.data.words.title;

/* Pixels that the frame adds to the height of the map. */
export const framedBy = ({ model }) =>
  HEAD + FOOT + LINE * model.data.words.picture.length;

/* Map and frame; the view of the world is that of the map alone. */
export function paintFramed(pen, world, width, height) {
  const { model, palette } = world;
  const tall = height - framedBy(world);
  pen.rect(0, 0, width, height, { fill: palette.paper });
  pen.clip(0, HEAD, width, tall, () =>
    paintAnswer(
      pen,
      { ...world, width, height: HEAD + tall },
      { ...world.view, y: world.view.y + HEAD },
      width,
      HEAD + tall,
    ),
  );
  pen.rect(0, 0, width, HEAD, { fill: palette.paper });
  const [first, second] = linesOf(world);
  pen.text(MARGIN, 24, first, {
    size: 19,
    bold: true,
    fill: palette.ink,
  });
  pen.text(MARGIN, 49, second, { size: 13, fill: palette.soft });
  const foot = HEAD + tall;
  paintLegendOfAreas(pen, world, MARGIN, foot + 20);
  model.data.words.picture.forEach((line, i) =>
    pen.text(MARGIN, foot + FOOT + 6 + LINE * i, line, {
      size: 12,
      fill: palette.soft,
    }),
  );
}

/* The finding and what it is made from; or the question, and its answer with the range that the cells prove. */
function linesOf(world) {
  const { model, state, t, number } = world;
  const { story } = model.answer;
  if (!state.a) return [headingOf(world), story];
  const query = queryOf(state);
  const trips = number(roundedTo3(totalOf(model, query)));
  const [before, , after] = t(
    state.way === "to" ? "sentence_to" : "sentence_from",
  ).split("|");
  const link =
    state.way === "from" ? "to" : state.way === "to" ? "from" : "and";
  const words = [
    before,
    t(state.way),
    state.a.label,
    ...(state.b ? [t(link), state.b.label] : []),
    after,
    state.hour ?? "",
  ];
  const question = words.filter(Boolean).join(" ");
  return [
    `${question}?`,
    `${trips} (${rangeWords(world, rangeOf(model, query))}) · ${story}`,
  ];
}

/* A pen that notes what is drawn, as rows of a kind and its arguments. */
export function recordingPen(widthOf) {
  const marks = [];
  const note =
    (kind) =>
    (...given) =>
      marks.push([kind, ...given]);
  return {
    marks,
    widthOf,
    rect: note("rect"),
    polygon: note("polygon"),
    line: note("line"),
    circle: note("circle"),
    text: note("text"),
    image() {},
    shape(shape, view, style, closed = true) {
      const rings = shape.lines.map((xy) =>
        Array.from({ length: xy.length / 2 }, (_, i) => [
          view.x + view.k * xy[2 * i],
          view.y + view.k * xy[2 * i + 1],
        ]),
      );
      marks.push(["rings", rings, style, closed]);
    },
    clip(x, y, w, h, act) {
      marks.push(["clip", x, y, w, h]);
      act();
      marks.push(["clip"]);
    },
  };
}

/* What the picture of a question consists of, as text for other programs. */
export function recordedPicture(data, palette, hash, width, height, widthOf) {
  const world = worldOfAnswer(data);
  world.palette = palette;
  Object.assign(world.state, stateOf(world, hash));
  world.view = fitted(extentOfAreas(world), width, height - framedBy(world));
  const pen = recordingPen(widthOf);
  paintFramed(pen, world, width, height);
  return JSON.stringify({ lines: linesOf(world), marks: pen.marks });
}
