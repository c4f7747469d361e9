/* What a reader takes along: the map as PNG or SVG, one file to embed, the table as CSV. Nothing leaves the page. */

import { groupOf } from "./panel.mjs";
import { labelOf } from "./model.mjs";
import { legendSteps, paintLegend, paintMap, paletteOf } from "./paint.mjs";
import { canvasPen, svgPen } from "./pens.mjs";

/* Pictures are this wide; borders are in pixels of the map as shown. */
const LONG = 1600;
const BORDER = 18;
const TOP = 66;

export function save(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(
    content instanceof Blob ? content : new Blob([content], { type }),
  );
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/* A file name from the title: letters and digits of any language, joined by hyphens. */
export const fileName = (title, suffix) =>
  `${
    title
      .normalize("NFC")
      .replace(/[^\p{L}\p{N}]+/gu, "-")
      .replace(/^-|-$/g, "")
      .slice(0, 60) || "map"
  }.${suffix}`;

/* The map in its present view with title, legend, scale, north, guarantee and source. Narrow maps have these below the
   legend, wide ones next to it. */
function layoutOf(world) {
  const { width, height } = world;
  const lines = world.model.data.words.picture.length;
  const narrow = width < 620;
  const legend = legendSteps(world.scene).length * 23 + 12;
  return {
    width,
    height:
      height +
      TOP +
      (narrow ? legend + 20 * lines + 14 : Math.max(legend, 20 * lines) + 30),
    top: TOP,
    stop: TOP + height,
    narrow,
    legend,
  };
}

function paintPicture(
  pen,
  world,
  { width, height, top, stop, narrow, legend },
  note,
  unit,
) {
  const { words } = world.model.data;
  const { palette, view, scene } = world;
  pen.rect(0, 0, width, height, { fill: palette.paper });
  pen.text(BORDER, 25, words.title, {
    size: 22,
    bold: true,
    fill: palette.ink,
  });
  pen.text(BORDER, 50, note, { size: 13, fill: palette.soft });
  const lower = {
    ...scene,
    circles: scene.circles.map((c) => ({ ...c, y: c.y + top })),
    lines: scene.lines.map((l) => ({
      ...l,
      a: [l.a[0], l.a[1] + top],
      b: [l.b[0], l.b[1] + top],
    })),
  };
  pen.clip(0, top, width, stop - top, () =>
    paintMap(pen, world, { ...view, y: view.y + top }, width, stop, lower),
  );
  paintLegend(pen, world, scene, BORDER, stop + 20, unit);
  const [x, y] = narrow
    ? [BORDER, stop + legend + 12]
    : [BORDER + 190, stop + 24];
  words.picture.forEach((line, i) =>
    pen.text(x, y + 20 * i, line, {
      size: 12,
      fill: i ? palette.soft : palette.ink,
    }),
  );
}

/* Pictures have light colours, as paper has, and no background map, whose licence is not that of the release. */
function inLight(world, act) {
  const root = document.documentElement;
  const was = root.classList.contains("printing");
  root.classList.add("printing");
  const palette = paletteOf(world.element);
  root.classList.toggle("printing", was);
  return act({
    ...world,
    palette,
    state: { ...world.state, background: false, hover: null },
  });
}

export function savePng(world, note, unit) {
  return inLight(world, (light) => {
    const layout = layoutOf(world);
    const density = LONG / layout.width;
    const canvas = document.createElement("canvas");
    canvas.width = LONG;
    canvas.height = Math.round(layout.height * density);
    paintPicture(
      canvasPen(canvas.getContext("2d"), density),
      light,
      layout,
      note,
      unit,
    );
    return new Promise((done) =>
      canvas.toBlob((blob) => {
        save(fileName(world.model.data.words.title, "png"), blob);
        done(null);
      }, "image/png"),
    );
  });
}

export function saveSvg(world, note, unit) {
  inLight(world, (light) => {
    const layout = layoutOf(world);
    const pen = svgPen(
      layout.width,
      layout.height,
      `${world.model.data.words.title}. ${note}`,
    );
    paintPicture(pen, light, layout, note, unit);
    save(
      fileName(world.model.data.words.title, "svg"),
      pen.markup(),
      "image/svg+xml",
    );
  });
}

/* One file with the map alone: the style, the data and the script of this page around an empty body. */
export function embedFile() {
  const style = document.querySelector("style").textContent;
  const data = document.getElementById("map-data").textContent;
  const script = document.getElementById("map-script").textContent;
  const policy = document
    .querySelector("meta[http-equiv]")
    .getAttribute("content")
    .replace(/"/g, "&quot;");
  const tag = (name, attributes, content) =>
    `<${name}${attributes}>${content}</${name}>`;
  return `<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="Content-Security-Policy" content="${policy}">${tag("title", "", "Map")}${tag("style", "", style)}</head>\n<body class="embed"><main id="map"></main>\n${tag("script", ' type="application/json" id="map-data"', data)}\n${tag("script", ' type="module" id="map-script"', script)}</body></html>\n`;
}

/* A cell that a spreadsheet would run as a formula gets an apostrophe, as in every CSV file of flowveil. */
const RISKY =
  /(^|[;\t\r\n])(?=['\t\r\n]|[\s"]*[=+\-@\uff1d\uff0b\uff0d\uff20])/g;
const field = (value) =>
  typeof value === "number"
    ? String(value)
    : `"${String(value).replace(RISKY, "$1'").replace(/"/g, '""')}"`;

export function csvOf(model, rows) {
  const { slices, times, bases } = model.data;
  const heads = [
    "origin_zone",
    "origin_name",
    "destination_zone",
    "destination_name",
    ...(slices ? slices.columns : times ? ["time"] : []),
    ...bases,
    ...model.numbers.map(([name]) => name),
  ];
  const lines = rows.map((i) =>
    [
      model.code[model.origin[i]],
      labelOf(model, model.origin[i]),
      model.code[model.destination[i]],
      labelOf(model, model.destination[i]),
      ...groupOf(model, i),
      ...bases.map((basis) => model.volume[basis][i]),
      ...model.numbers.map(([, values]) =>
        Number.isFinite(values[i]) ? values[i] : "",
      ),
    ]
      .map(field)
      .join(),
  );
  return [heads.map(field).join(), ...lines].join("\n") + "\n";
}

/* Rows of numbers and texts as CSV, the first is the header. */
export const csvText = (rows) =>
  rows.map((row) => row.map(field).join() + "\n").join("");
