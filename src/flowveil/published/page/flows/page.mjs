/* The page of a release: the map of areas with the question and the answer, and behind it the map of the cells.

   mountPage(element, data) makes everything below the element. A page without an estimate is the map of the cells. */

import {
  answerScene,
  areaUnder,
  areasWithin,
  extentOfAreas,
  fillLegend,
  paintAnswer,
} from "./areas.mjs";
import { fillAnswer, fillHours, relyOn } from "./answer.mjs";
import { rangeOf, rangeWords, roundedTo3 } from "./estimate.mjs";
import { mountMap } from "./mount.mjs";
import { fitted, paintCross, paletteOf } from "./paint.mjs";
import { button, make } from "./panel.mjs";
import { canvasPen, svgPen } from "./pens.mjs";
import { framedBy, headingOf, paintFramed, worldOfAnswer } from "./picture.mjs";
import {
  areasChoice,
  hashOf,
  mountSentence,
  placeChoice,
  queryOf,
  stateOf,
} from "./question.mjs";
import { csvText, embedFile, fileName, save } from "./take.mjs";
import { mountViewport } from "./viewport.mjs";

export function mountPage(root, data) {
  if (!data.answer) {
    mountMap(root, data);
    return;
  }
  const world = worldOf(root, data);
  const parts = elementsOf(world, root);
  const act = actsOf(world, parts);
  world.sentence = mountSentence(world, parts.ask, act.change);
  world.viewport = mountViewport(parts.canvas, world, act);
  parts.zoom.append(...zoomKeys(world, act));
  parts.take.append(...takeButtons(world, act));
  parts.rely.append(relyOn(world));
  addEventListener("hashchange", () => act.open(location.hash));
  const recolour = () => {
    world.palette = answerPalette(root);
    refreshPage(world, parts, act);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener(
    "change",
    recolour,
  );
  const printing = (on) => {
    document.documentElement.classList.toggle("printing", on);
    recolour();
  };
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  new ResizeObserver(() => {
    if (
      parts.canvas.clientWidth !== world.width ||
      parts.canvas.clientHeight !== world.height
    )
      drawPage(world, parts);
  }).observe(parts.stage);
  act.open(location.hash);
}

/** @returns {any} */
function worldOf(root, data) {
  const { language, zone } = data.answer;
  return {
    ...worldOfAnswer(data),
    view: null,
    width: 0,
    height: 0,
    least: 0,
    tool: null,
    palette: answerPalette(root),
    clock: zone ? clockName(language, zone) : "",
  };
}
/* What people call a time zone, and its code. */
function clockName(language, zone) {
  try {
    const named = new Intl.DateTimeFormat(language, {
      timeZone: zone,
      timeZoneName: "longGeneric",
    }).formatToParts(0);
    const name = named.find(({ type }) => type === "timeZoneName")?.value;
    return name && name !== zone ? `${name} (${zone})` : zone;
  } catch {
    return zone;
  }
}
const answerPalette = (root) => ({
  ...paletteOf(root),
  from: cssOf(root, "from"),
  to: cssOf(root, "to"),
});
const cssOf = (root, name) =>
  getComputedStyle(root).getPropertyValue(`--${name}`).trim();

function elementsOf(world, root) {
  const { t } = world;
  const layout = make("div", "", "answering");
  const left = make("div", "", "asked");
  const stage = make("div", "", "stage");
  const canvas = make("canvas", "", "", {
    tabindex: "0",
    role: "application",
    "aria-roledescription": "map",
    "aria-label": t("map_label"),
  });
  const parts = {
    root,
    layout,
    left,
    stage,
    canvas,
    ask: make("div", "", "ask"),
    legend: make("div", "", "legend areas"),
    zoom: make("div", "", "zoom"),
    tip: make("div", "", "tip"),
    panel: make("aside", "", "answer", { "aria-label": t("answer") }),
    moving: make("div", "", "moving", {
      tabindex: "0",
      role: "group",
      "aria-label": t("answer"),
    }),
    fixed: make("div", "", "fixed"),
    figures: make("div", "", "", { "aria-live": "polite" }),
    hours: make("div"),
    rely: make("div"),
    take: make("div", "", "take"),
    cells: make("div", "", "cells"),
  };
  parts.tip.hidden = true;
  stage.append(parts.ask, canvas, parts.legend, parts.zoom, parts.tip);
  left.append(stage);
  parts.moving.append(parts.figures, parts.hours);
  parts.fixed.append(parts.rely, parts.take);
  parts.panel.append(parts.moving, parts.fixed);
  parts.header = root.querySelector("header");
  if (parts.header) left.prepend(parts.header);
  layout.append(left, parts.panel);
  root.append(layout);
  if (world.model.data.context)
    parts.fixed.append(
      make("p", world.model.data.context.credit, "credit soft"),
    );
  return parts;
}

function actsOf(world, parts) {
  const act = {
    change: (changes) => {
      Object.assign(world.state, changes);
      parts.tip.hidden = true;
      if (!world.state.a && world.state.b)
        Object.assign(world.state, { a: world.state.b, b: null });
      writeLink(world);
      refreshPage(world, parts, act);
    },
    open: (hash) => {
      const cells = hash === "#cells" || hash.startsWith("#cells&");
      showCells(world, parts, cells);
      if (!cells) {
        Object.assign(world.state, stateOf(world, hash));
        refreshPage(world, parts, act);
      }
    },
    clear: () => act.change({ a: null, b: null }),
    home: () => {
      world.view = fitted(extentOfAreas(world), world.width, world.height);
      drawPage(world, parts);
    },
    moved: () => {
      parts.tip.hidden = true;
      world.hover = null;
      parts.canvas.style.touchAction =
        world.tool === "draw" || world.view.k > 3.5 * world.least
          ? "none"
          : "pan-y";
      world.waiting ||= requestAnimationFrame(() => {
        world.waiting = 0;
        drawPage(world, parts);
      });
    },
    pick: (px, py, more) =>
      pickArea(world, act, areaUnder(world, px, py), more),
    near: (px, py) => showTip(world, parts, px, py),
    leave: () => {
      parts.tip.hidden = true;
      if (world.hover !== null) {
        world.hover = null;
        drawPage(world, parts);
      }
    },
    lasso: (points, done) => {
      world.lasso = done ? null : points;
      if (done) {
        act.take(null);
        const choice = areasChoice(world, areasWithin(world, points));
        if (choice) {
          act.change({ a: choice });
          return;
        }
      }
      drawPage(world, parts);
    },
    take: (tool) => {
      world.tool = world.tool === tool ? null : tool;
      for (const b of parts.zoom.querySelectorAll("[data-tool]"))
        b.setAttribute("aria-pressed", b.dataset.tool === world.tool);
      act.moved();
    },
    cells: () => {
      location.hash = "cells";
    },
  };
  return act;
}

/* A click chooses the place; with Shift one area is added to the choice, or taken out of it. */
function pickArea(world, act, area, more) {
  const { model, state } = world;
  if (area === null) {
    if (state.a) act.clear();
    return;
  }
  if (more && state.a) {
    const areas = new Set(state.a.areas);
    if (!areas.delete(area)) areas.add(area);
    act.change({ a: areasChoice(world, areas) });
    return;
  }
  const choice = placeChoice(model, model.place[area]);
  /* A second click looks at the one area. */
  act.change({
    a:
      state.a?.place === choice.place && choice.areas.length > 1
        ? areasChoice(world, [area])
        : choice,
    b: null,
  });
}

function writeLink(world) {
  const hash = hashOf(world.state);
  try {
    history.replaceState(
      null,
      "",
      hash ? `#${hash}` : location.pathname + location.search,
    );
  } catch {
    /* a page in a frame has no address */
  }
}

function refreshPage(world, parts, act) {
  world.sentence?.();
  drawPage(world, parts);
  fillLegend(world, parts.legend, make);
  fillAnswer(world, parts.figures, act);
  fillHours(world, parts.hours, act);
  parts.canvas.dataset.shown = `${answerScene(world).arrows.length} arrows`;
}

function drawPage(world, parts) {
  const { canvas } = parts;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const density = Math.min(
    3,
    Math.max(
      devicePixelRatio || 1,
      document.documentElement.classList.contains("printing") ? 3 : 1,
    ),
  );
  if (!width || !height) return;
  if (width !== world.width || height !== world.height)
    sizePage(world, width, height);
  if (
    canvas.width !== Math.round(width * density) ||
    canvas.height !== Math.round(height * density)
  ) {
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
  }
  const pen = canvasPen(canvas.getContext("2d"), density);
  paintAnswer(pen, world, world.view, width, height);
  if (canvas === document.activeElement && canvas.matches(":focus-visible"))
    paintCross(pen, world.palette, width, height);
}
/* A map of another size shows the same area around the same middle. */
function sizePage(world, width, height) {
  const { view } = world;
  const whole = fitted(extentOfAreas(world), width, height);
  if (!view) world.view = whole;
  else {
    const by = Math.min(width / world.width, height / world.height);
    view.x = width / 2 - by * (world.width / 2 - view.x);
    view.y = height / 2 - by * (world.height / 2 - view.y);
    view.k *= by;
  }
  world.width = width;
  world.height = height;
  world.least = 0.3 * whole.k;
}

function showTip(world, parts, px, py) {
  const { model, state, t, number } = world;
  const area = areaUnder(world, px, py);
  const { values, told } = answerScene(world);
  const shown = area !== null && values[area] > 0 ? area : null;
  if (shown !== world.hover) {
    world.hover = shown;
    drawPage(world, parts);
  }
  parts.canvas.style.cursor = shown === null ? "" : "pointer";
  parts.tip.hidden = shown === null;
  if (shown === null) return;
  const k = model.answer.k ?? 0;
  const place = model.name[model.place[shown]];
  parts.tip.textContent = "";
  parts.tip.append(make("strong", place));
  if (!told[shown])
    parts.tip.append(make("div", t("hatched", { k: number(k) })));
  else {
    const mask = new Uint8Array(model.n);
    mask[shown] = 1;
    const sets = queryOf(state);
    const range =
      state.a && state.way !== "between"
        ? rangeOf(
            model,
            state.way === "to"
              ? { ...sets, from: mask }
              : { ...sets, to: mask },
          )
        : null;
    parts.tip.append(
      make(
        "div",
        `${number(roundedTo3(values[shown]))} ${t(state.a ? "legend_part" : "legend_ends").toLowerCase()}${range ? ` (${rangeWords(world, range)})` : ""}`,
      ),
    );
  }
  parts.tip.style.left = `${Math.max(4, Math.min(px + 14, world.width - 250))}px`;
  parts.tip.style.top = `${py > world.height - 120 ? py - 70 : py + 14}px`;
}

function zoomKeys(world, act) {
  const { t } = world;
  const tools = [
    ["✎", "draw"],
    ["⊕", "add"],
  ].map(([words, tool]) => {
    const b = button(words, () => act.take(tool));
    b.dataset.tool = tool;
    b.title = t(tool);
    b.setAttribute("aria-label", t(tool));
    b.setAttribute("aria-pressed", "false");
    return b;
  });
  const keys = [
    ["+", "zoom_in", () => world.viewport.zoom(1.6)],
    ["−", "zoom_out", () => world.viewport.zoom(1 / 1.6)],
    ["⌂", "whole_area", () => act.home()],
  ].map(([words, key, react]) => {
    const b = button(words, react);
    b.title = t(key);
    b.setAttribute("aria-label", t(key));
    return b;
  });
  return [...keys, ...tools];
}

/* ---- the cells behind the answer ---- */

function showCells(world, parts, show) {
  const { t, model } = world;
  (show ? parts.layout : parts.cells).remove();
  parts.root.append(show ? parts.cells : parts.layout);
  const mounted = parts.cells.querySelector("canvas");
  if (parts.header) (show ? parts.cells : parts.left).prepend(parts.header);
  if (!show || mounted) return;
  const back = button(t("back_to_answer"), () => {
    location.hash = hashOf(world.state);
  });
  parts.cells.append(back, make("p", t("cells_explained"), "soft"));
  mountMap(parts.cells, model.data);
}

/* ---- what a reader takes along ---- */

function takeButtons(world, act) {
  const { t, model } = world;
  const { title } = model.data.words;
  const copied = make("span", "", "soft", { role: "status" });
  const link = button(t("link"), () => {
    navigator.clipboard?.writeText(location.href).then(
      () => {
        copied.textContent = t("copied");
      },
      () => {
        copied.textContent = location.href;
      },
    );
  });
  const buttons = [
    button("PNG", () => pictureOfAnswer(world, "png")),
    button("SVG", () => pictureOfAnswer(world, "svg")),
    button("CSV", () =>
      save(fileName(title, "csv"), tableOfAnswer(world), "text/csv"),
    ),
    button(t("embed"), () =>
      save(fileName(title, "html"), embedFile(), "text/html"),
    ),
  ];
  return [
    button(t("show_cells"), act.cells, "cells-link"),
    link,
    ...buttons,
    copied,
  ];
}

function tableOfAnswer(world) {
  const { model, state } = world;
  const { from, to, hour } = queryOf(state);
  const at = hour === null || !model.time ? -1 : model.times.indexOf(hour);
  const lines = [];
  for (let i = 0; i < model.hundredths.length; i++) {
    const o = model.origin[i];
    const d = model.destination[i];
    if (
      (from && !from[o]) ||
      (to && !to[d]) ||
      (at >= 0 && model.time[i] !== at)
    )
      continue;
    lines.push([
      model.code[o],
      model.name[model.place[o]],
      model.code[d],
      model.name[model.place[d]],
      ...(model.time ? [model.times[model.time[i]]] : []),
      model.hundredths[i] / 100,
    ]);
  }
  return csvText([
    [
      "origin",
      "origin_place",
      "destination",
      "destination_place",
      ...(model.time ? ["time"] : []),
      "estimate",
    ],
    ...lines,
  ]);
}

/* Pictures have light colours, as paper has. */
function pictureOfAnswer(world, kind) {
  const root = document.documentElement;
  const was = root.classList.contains("printing");
  root.classList.add("printing");
  const light = { ...world, hover: null, palette: answerPalette(root) };
  root.classList.toggle("printing", was);
  const { width } = world;
  const height = world.height + framedBy(world);
  const heading = headingOf(world);
  if (kind === "svg") {
    const pen = svgPen(width, height, heading);
    paintFramed(pen, light, width, height);
    save(fileName(heading, "svg"), pen.markup(), "image/svg+xml");
    return;
  }
  const canvas = make("canvas");
  const density = 1600 / width;
  canvas.width = 1600;
  canvas.height = Math.round(height * density);
  paintFramed(
    canvasPen(canvas.getContext("2d"), density),
    light,
    width,
    height,
  );
  canvas.toBlob((blob) => save(fileName(heading, "png"), blob), "image/png");
}
