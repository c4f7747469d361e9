/* Puts the map of a page to work. Nothing is ever requested, unless the page was made with a background map and the
   reader switches it on. mountMap(element, data) makes everything below the element. */

import { shapesOf } from "./columns.mjs";
import { mountPickers, mountTime } from "./hours.mjs";
import {
  NOWHERE,
  clusterLabel,
  exact,
  fold,
  modelOf,
  shownVolumes,
  zonesIn,
} from "./model.mjs";
import {
  circleAt,
  degreesAt,
  fitted,
  legendSteps,
  lineAt,
  paintCross,
  paintLegend,
  paintMap,
  paletteOf,
  sceneOf,
} from "./paint.mjs";
import {
  button,
  choose,
  fillPanel,
  fillTable,
  make,
  shownCells,
  tipLines,
  unitOf,
} from "./panel.mjs";
import { canvasPen } from "./pens.mjs";
import { mountSearch } from "./search.mjs";
import { csvOf, embedFile, fileName, save, savePng, saveSvg } from "./take.mjs";

export function mountMap(root, data) {
  const model = modelOf(data);
  const drawn = data.frame !== null;
  const state = {
    basis: data.bases[0],
    key: (data.slices?.columns ?? []).map(() => null),
    hour: null,
    chosen: null,
    hover: null,
    background: false,
  };
  const context = data.context;
  const ground = context && {
    ...Object.fromEntries(
      ["water", "rivers", "borders", "ownLines"].map((name) => [
        name,
        shapesOf(context[name]),
      ]),
    ),
    towns: context.towns,
    ownNames: context.ownNames,
  };
  const world = {
    model,
    state,
    ground,
    element: root,
    palette: paletteOf(root),
    view: null,
    width: 0,
    height: 0,
  };

  /* ---- the elements ---- */
  const tools = make("div", "", "tools");
  const stage = make("div", "", "stage");
  const time = make("div", "", "time");
  const take = make("div", "", "take");
  const canvas = make("canvas", "", "", {
    tabindex: "0",
    role: "application",
    "aria-roledescription": "map",
    "aria-label": "Map of flows",
  });
  const legend = make("div", "", "legend");
  const key = make("canvas", "", "", { "aria-hidden": "true" });
  const said = make("p", "", "said");
  const panel = make("div", "", "panel", {
    role: "status",
    "aria-live": "polite",
  });
  const table = numbersTable(model);
  const tip = make("div", "", "tip");
  tip.hidden = true;
  legend.append(key, said);
  /* Alone in another page, the map says what it is. */
  if (document.body.classList.contains("embed")) {
    const caption = make("p", "", "caption");
    caption.append(
      make("strong", data.words.title),
      make("span", ` ${data.words.picture[0]}`, "soft"),
    );
    root.append(caption);
  }
  if (drawn) {
    stage.append(canvas, legend, panel, zoomButtons(), tip);
    root.append(tools, stage, time, take);
  } else {
    root.append(tools, panel, time, take);
  }
  root.append(table.element);
  if (context) root.append(make("p", context.credit, "credit soft"));

  /* ---- what is shown ---- */
  const act = {
    clear: () => {
      state.chosen = null;
      refresh();
    },
    zones: (zones, label) => {
      state.chosen = choose(model, zones, label);
      bring(zones);
      refresh();
    },
    cluster: (level, cluster) => {
      state.chosen = choose(
        model,
        zonesIn(level, cluster),
        clusterLabel(model, level, cluster),
      );
      refresh();
    },
  };
  mountSearch(model, tools, act.zones);
  if (data.bases.length > 1) tools.append(basisPicker());
  mountPickers(world, tools, refresh);
  if (drawn && data.background) tools.append(backgroundSwitch());
  const clock = mountTime(world, time, refresh);
  mountTake();
  table.filter.addEventListener("input", () => refreshTable());

  let waiting = 0;
  const redraw = () => {
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      draw();
    });
  };
  function refresh() {
    if (drawn) {
      draw();
      fillPanel(world, panel, act);
    } else world.volumes = { of: shownVolumes(model, state) };
    refreshTable();
    describe();
  }
  let rows = null;
  function refreshTable() {
    rows = null;
    if (table.element.open)
      fillTable(world, table.body, table.count, shownRows(), act);
  }
  const shownRows = () =>
    (rows ??= shownCells(world, table.filter.value, fold));
  table.element.addEventListener("toggle", refreshTable);

  function draw() {
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
    if (width !== world.width || height !== world.height) resize(width, height);
    if (
      canvas.width !== Math.round(width * density) ||
      canvas.height !== Math.round(height * density)
    ) {
      canvas.width = Math.round(width * density);
      canvas.height = Math.round(height * density);
    }
    const scene = (world.scene = sceneOf(world, world.view, width, height));
    const pen = canvasPen(canvas.getContext("2d"), density);
    paintMap(pen, world, world.view, width, height, scene);
    if (canvas === document.activeElement && canvas.matches(":focus-visible"))
      paintCross(pen, world.palette, width, height);
    drawLegend(scene, density);
    const { frame } = data;
    const [north, west] = degreesAt(
      frame,
      -world.view.x / world.view.k,
      -world.view.y / world.view.k,
    );
    const [south, east] = degreesAt(
      frame,
      (width - world.view.x) / world.view.k,
      (height - world.view.y) / world.view.k,
    );
    canvas.dataset.view = [west, south, east, north]
      .map((v) => v.toFixed(6))
      .join();
    canvas.dataset.shown = `${scene.circles.length} circles, ${scene.lines.length} flows`;
  }
  /* A map of another size, on paper or in a narrower window, shows the same area around the same middle. */
  function resize(width, height) {
    const { view } = world;
    if (!view) world.view = fitted(model.extent, width, height);
    else {
      const by = Math.min(width / world.width, height / world.height);
      view.x = width / 2 - by * (world.width / 2 - view.x);
      view.y = height / 2 - by * (world.height / 2 - view.y);
      view.k *= by;
    }
    world.width = width;
    world.height = height;
  }
  let legendKey = "";
  function drawLegend(scene, density) {
    const { sums } = scene;
    const unit = unitOf(world);
    const away = sums.elsewhere
      ? ` ${exact(sums.elsewhere)} ${unit} to or from outside the area are not drawn.`
      : "";
    const held =
      model.origin.length < data.cells.count
        ? ` The page holds the ${exact(model.origin.length)} largest of ${exact(data.cells.count)} numbers.`
        : "";
    const fewer =
      scene.lines.length < sums.order.length
        ? ` The ${exact(scene.lines.length)} largest flows in sight are drawn.`
        : "";
    const words = `${exact(sums.total)} ${unit}${state.chosen ? ` of ${state.chosen.label}` : ""}.${fewer}${away}${held}`;
    if (said.textContent !== words) said.textContent = words;
    const now = [
      legendSteps(scene),
      scene.most,
      unit,
      density,
      JSON.stringify(world.palette),
    ].join();
    if (now === legendKey) return;
    legendKey = now;
    const height = legendSteps(scene).reduce(
      (sum, step) => sum + Math.max(19, scene.widthOf(step) + 12),
      8,
    );
    key.style.width = "190px";
    key.style.height = `${height}px`;
    key.width = 190 * density;
    key.height = height * density;
    paintLegend(
      canvasPen(key.getContext("2d"), density),
      world,
      scene,
      2,
      8,
      unit,
    );
  }
  function describe() {
    const chosen = state.chosen ? ` Of ${state.chosen.label} only.` : "";
    const when = clock.now() ? ` ${clock.now()}.` : "";
    canvas.setAttribute(
      "aria-label",
      `Map of flows between ${exact(model.code.length)} zones.${when}${chosen} Arrow keys move, plus and minus zoom, Enter selects the place under the cross, Escape clears. The table below holds the same numbers.`,
    );
  }

  /* ---- moving ---- */
  function zoomBy(factor, px = world.width / 2, py = world.height / 2) {
    const { view } = world;
    const least = 0.3 * fitted(model.extent, world.width, world.height).k;
    const k = Math.min(Math.max(view.k * factor, least), 2000 * least);
    const by = k / view.k;
    view.x = px - by * (px - view.x);
    view.y = py - by * (py - view.y);
    view.k = k;
    moved();
  }
  function panBy(dx, dy) {
    world.view.x += dx;
    world.view.y += dy;
    moved();
  }
  function home() {
    world.view = fitted(model.extent, world.width, world.height);
    moved();
  }
  function moved() {
    tip.hidden = true;
    state.hover = null;
    canvas.style.touchAction =
      world.view.k > 1.05 * fitted(model.extent, world.width, world.height).k
        ? "none"
        : "pan-y";
    redraw();
  }
  /* Move the map to zones that are out of sight or too small to see. */
  function bring(zones) {
    if (!world.view) return;
    const box = {
      west: Infinity,
      east: -Infinity,
      north: Infinity,
      south: -Infinity,
    };
    for (const zone of zones) {
      if (model.x[zone] === NOWHERE) continue;
      box.west = Math.min(box.west, model.x[zone]);
      box.east = Math.max(box.east, model.x[zone]);
      box.north = Math.min(box.north, model.y[zone]);
      box.south = Math.max(box.south, model.y[zone]);
    }
    if (box.west === Infinity) return;
    const { view } = world;
    const x = view.x + (view.k * (box.west + box.east)) / 2;
    const y = view.y + (view.k * (box.north + box.south)) / 2;
    const wide = fitted(
      {
        west: box.west,
        east: box.east + 1,
        north: box.north,
        south: box.south + 1,
      },
      world.width,
      world.height,
    ).k;
    if (view.k > wide) zoomBy(wide / view.k);
    if (x < 60 || x > world.width - 60 || y < 60 || y > world.height - 60)
      panBy(world.width / 2 - x, world.height / 2 - y);
  }

  /* ---- fingers, mouse and keys ---- */
  function pick(px, py) {
    const circle = circleAt(world.scene, px, py);
    if (circle) {
      act.cluster(world.scene.level, circle.cluster);
      return true;
    }
    const line = lineAt(world.scene, px, py);
    if (line) {
      act.cluster(world.scene.level, line.from);
      return true;
    }
    return false;
  }
  function hover(e) {
    const [px, py] = place(e);
    const circle = circleAt(world.scene, px, py);
    const line = circle ? null : lineAt(world.scene, px, py);
    const next = circle
      ? { cluster: circle.cluster, level: world.scene.level }
      : line
        ? { flow: line.flow }
        : null;
    canvas.style.cursor = next ? "pointer" : "";
    if (
      next?.cluster !== state.hover?.cluster ||
      next?.flow !== state.hover?.flow
    ) {
      state.hover = next;
      redraw();
    }
    tip.hidden = !next;
    if (!next) return;
    tip.textContent = "";
    tipLines(world, next).forEach((line, i) =>
      tip.append(make(i ? "div" : "strong", line)),
    );
    tip.style.left = `${Math.max(4, Math.min(px + 14, world.width - 250))}px`;
    tip.style.top = `${py > world.height - 120 ? py - 90 : py + 14}px`;
  }
  const place = (e) => {
    const r = canvas.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  };
  const fingers = new Map();
  let drag = null;
  let pinch = null;
  const span = () => {
    const [a, b] = [...fingers.values()];
    return {
      length: Math.hypot(a[0] - b[0], a[1] - b[1]),
      x: (a[0] + b[0]) / 2,
      y: (a[1] + b[1]) / 2,
    };
  };
  /* Two fingers belong to the map: the page must not scroll away under them. */
  canvas.addEventListener(
    "touchstart",
    (e) => {
      if (e.touches.length > 1) e.preventDefault();
    },
    { passive: false },
  );
  canvas.addEventListener("pointerdown", (e) => {
    fingers.set(e.pointerId, place(e));
    canvas.setPointerCapture(e.pointerId);
    if (fingers.size === 2) {
      pinch = span();
      drag = null;
    } else drag = { x: e.clientX, y: e.clientY, moved: false };
  });
  canvas.addEventListener("pointermove", (e) => {
    if (fingers.has(e.pointerId)) fingers.set(e.pointerId, place(e));
    if (pinch && fingers.size === 2) {
      const now = span();
      panBy(now.x - pinch.x, now.y - pinch.y);
      if (pinch.length > 0) zoomBy(now.length / pinch.length, now.x, now.y);
      pinch = now;
    } else if (drag) {
      const dx = e.clientX - drag.x;
      const dy = e.clientY - drag.y;
      if (!drag.moved && Math.hypot(dx, dy) < 4) return;
      drag.moved = true;
      panBy(dx, dy);
      drag.x = e.clientX;
      drag.y = e.clientY;
    } else if (!pinch && world.scene) hover(e);
  });
  const up = (e, chosen) => {
    fingers.delete(e.pointerId);
    if (
      chosen &&
      drag &&
      !drag.moved &&
      !pinch &&
      !pick(...place(e)) &&
      state.chosen
    )
      act.clear();
    drag = null;
    if (!fingers.size) pinch = null;
    if (e.pointerType === "touch") leave();
  };
  const leave = () => {
    tip.hidden = true;
    if (state.hover) {
      state.hover = null;
      redraw();
    }
  };
  canvas.addEventListener("pointerup", (e) => up(e, true));
  canvas.addEventListener("pointercancel", (e) => up(e, false));
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener(
    "wheel",
    (e) => {
      /* The wheel scrolls the page, unless the map has been chosen by a click or a modifier is held. */
      if (!e.ctrlKey && !e.metaKey && document.activeElement !== canvas) return;
      e.preventDefault();
      zoomBy(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0022)), ...place(e));
    },
    { passive: false },
  );
  canvas.addEventListener("dblclick", (e) => zoomBy(2, ...place(e)));
  canvas.addEventListener("keydown", (e) => {
    const step = {
      ArrowLeft: [60, 0],
      ArrowRight: [-60, 0],
      ArrowUp: [0, 60],
      ArrowDown: [0, -60],
    }[e.key];
    if (step) panBy(...step);
    else if (e.key === "+" || e.key === "=") zoomBy(1.5);
    else if (e.key === "-") zoomBy(1 / 1.5);
    else if (e.key === "0") home();
    else if (e.key === "Escape") act.clear();
    else if (e.key === "Enter" || e.key === " ") {
      if (!pickNearest())
        said.textContent =
          "No place lies under the cross. Move the map with the arrow keys, or search for a place.";
    } else return;
    e.preventDefault();
  });
  function pickNearest() {
    const near = world.scene.circles
      .map((c) => ({
        ...c,
        d: Math.hypot(c.x - world.width / 2, c.y - world.height / 2),
      }))
      .sort((a, b) => a.d - b.d)[0];
    if (!near || near.d > 40) return false;
    act.cluster(world.scene.level, near.cluster);
    return true;
  }
  canvas.addEventListener("focus", redraw);
  canvas.addEventListener("blur", redraw);

  /* ---- controls ---- */
  function zoomButtons() {
    const box = make("div", "", "zoom");
    for (const [words, label, react] of [
      ["+", "Zoom in", () => zoomBy(1.6)],
      ["−", "Zoom out", () => zoomBy(1 / 1.6)],
      ["⌂", "Show the whole area", () => home()],
    ]) {
      const b = button(words, react);
      b.title = label;
      b.setAttribute("aria-label", label);
      box.append(b);
    }
    return box;
  }
  function basisPicker() {
    const label = make("label", "Count");
    const select = make("select");
    select.append(
      ...data.bases.map((basis) => make("option", basis, "", { value: basis })),
    );
    select.addEventListener("change", () => {
      state.basis = select.value;
      refresh();
    });
    label.append(select);
    return label;
  }
  function backgroundSwitch() {
    const label = make("label", "", "check");
    const box = make("input", "", "", { type: "checkbox", id: "background" });
    const server = new URL(data.background.url.replace(/[{}]/g, "")).host;
    const credit = make("span", " © OpenStreetMap contributors", "soft");
    credit.hidden = true;
    world.tiles = tilePainter(data, () => redraw());
    box.addEventListener("change", () => {
      state.background = box.checked;
      credit.hidden = !box.checked;
      redraw();
    });
    label.append(
      box,
      document.createTextNode(
        `Background map (asks ${server}, which learns the area you look at)`,
      ),
      credit,
    );
    return label;
  }
  function mountTake() {
    const note = () =>
      [
        clock.now(),
        ...state.key.filter((v, i) => v !== null && i !== data.slices?.time),
        state.chosen && `trips of ${state.chosen.label}`,
        `${exact(world.sums.total)} ${unitOf(world)}`,
      ]
        .filter(Boolean)
        .join(", ");
    take.append(make("span", "Take it with you:", "soft"));
    if (drawn) {
      take.append(
        button("PNG", () => savePng(world, note(), unitOf(world))),
        button("SVG", () => saveSvg(world, note(), unitOf(world))),
      );
      if (
        document.getElementById("map-script") &&
        !document.body.classList.contains("embed")
      )
        take.append(embedBox());
    }
    take.append(
      button("CSV", () =>
        save(
          fileName(data.words.title, "csv"),
          csvOf(model, shownRows()),
          "text/csv",
        ),
      ),
    );
  }
  function embedBox() {
    const box = make("details", "", "embedding");
    const name = fileName(data.words.title, "html");
    const line = make(
      "textarea",
      `<iframe src="${name}" title="${data.words.title.replace(/[&"<>]/g, "")}" width="100%" height="640" style="border:0" loading="lazy"></iframe>`,
      "",
      { readonly: "", rows: "3", "aria-label": "Line to copy into a page" },
    );
    line.addEventListener("focus", () => line.select());
    box.append(
      make("summary", "Embed"),
      make(
        "p",
        "Save the map as one file, put it on a server, and copy this line into a page:",
      ),
      line,
      button("Save the map file", () => save(name, embedFile(), "text/html")),
    );
    return box;
  }

  /* ---- light, dark, paper, size ---- */
  const recolour = () => {
    world.palette = paletteOf(root);
    legendKey = "";
    if (drawn) draw();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener(
    "change",
    recolour,
  );
  const printing = (now) => {
    document.documentElement.classList.toggle("printing", now);
    recolour();
  };
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  matchMedia("print").addEventListener("change", (e) => {
    if (e.matches) printing(true);
  });
  if (drawn)
    new ResizeObserver(() => {
      if (
        canvas.clientWidth !== world.width ||
        canvas.clientHeight !== world.height
      )
        draw();
    }).observe(stage);
  refresh();
}

/* The background map: only in pages that were made with one, only when switched on. */
function tilePainter({ frame, background }, redraw) {
  const tiles = new Map();
  return (pen, view, width, height) => {
    const side = view.k / frame.perUnit;
    const z = Math.max(
      0,
      Math.min(background.maxZoom, Math.round(Math.log2(side / 256))),
    );
    const n = 2 ** z;
    const size = side / n;
    const left = frame.west * side - view.x;
    const top = frame.north * side - view.y;
    for (let x = Math.floor(left / size); x * size < left + width; x++)
      for (
        let y = Math.max(0, Math.floor(top / size));
        y < n && y * size < top + height;
        y++
      ) {
        const url = background.url
          .replace("{z}", z)
          .replace("{x}", ((x % n) + n) % n)
          .replace("{y}", y);
        if (!tiles.has(url)) {
          const image = new Image();
          image.onload = redraw;
          image.src = url;
          tiles.set(url, image);
        }
        const image = tiles.get(url);
        if (image.complete && image.naturalWidth)
          pen.image(
            image,
            x * size - left,
            y * size - top,
            size + 0.5,
            size + 0.5,
          );
      }
  };
}

/* The numbers of the map as a table, filled when it is opened. */
function numbersTable(model) {
  const { slices, times, bases, frame } = model.data;
  const element = make("details", "", "numbers");
  const label = make("label", "From or to ");
  const filter = make("input", "", "", {
    type: "search",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "name or code",
  });
  const count = make("p", "", "soft");
  const scroll = make("div", "", "scroll", {
    tabindex: "0",
    role: "region",
    "aria-label": "Published numbers",
  });
  const whole = make("table");
  const head = make("thead");
  const row = make("tr");
  const body = make("tbody");
  for (const name of [
    "From",
    "To",
    ...(slices ? slices.columns : times ? ["Time"] : []),
  ])
    row.append(make("th", name, "", { scope: "col" }));
  for (const basis of bases)
    row.append(
      make("th", basis === "trips" ? "Trips" : "Weight", "number", {
        scope: "col",
      }),
    );
  for (const [name] of model.numbers)
    row.append(make("th", name, "number", { scope: "col" }));
  label.append(filter);
  head.append(row);
  whole.append(head, body);
  scroll.append(whole);
  element.append(
    make("summary", "The numbers as a table"),
    label,
    count,
    scroll,
  );
  element.open = frame === null;
  return { element, filter, count, body };
}
