/* Small maps of areas with one value each, which move together: of private pages and of the workbench.

   mount(element, data) draws into the figures of an element and returns { update(data), destroy() }: an update keeps the
   view where the frame is the same. */

import { drawLegends, paletteOf, scaleOf } from "./colours.mjs";
import { draw, viewOf, visible } from "./draw.mjs";
import { centralOf, decode, extentOf, inside } from "./geometry.mjs";
import { exact } from "./scale.mjs";

const make = (tag, words = "", kind = "") => {
  const e = document.createElement(tag);
  e.textContent = words;
  if (kind) e.className = kind;
  return e;
};

export function mount(root, data) {
  const gone = new AbortController();
  const signal = gone.signal;
  const world = { view: null, moving: false };
  const maps = (world.maps = [
    ...root.querySelectorAll("figure.map[data-layer]"),
  ].map((figure) => ({
    figure,
    layer: figure.dataset.layer,
    canvas: figure.querySelector("canvas"),
    context: figure.querySelector("canvas").getContext("2d"),
    hover: -1,
    drawn: null,
    added: [],
  })));

  /* ---- what is shown ---- */
  function take(next) {
    const same =
      world.data &&
      JSON.stringify(next.frame) === JSON.stringify(world.data.frame);
    world.data = next;
    world.shapes = next.shapes.map(decode);
    const areas = maps.flatMap(({ layer }) => areasOf(next.layers[layer]));
    world.extent = extentOf(areas);
    /* The first view shows the layers in `fit`, where data name them. */
    if (!same) {
      world.fitted = centralOf(
        next.fit
          ? next.fit.flatMap((name) => areasOf(next.layers[name]))
          : areas,
      );
      world.view = { zoom: 1, dx: 0, dy: 0 };
    }
    refresh();
  }
  function areasOf(layer) {
    return layer.shape
      .map((n, i) => ({ shape: world.shapes[n], value: layer.values[i] }))
      .filter(({ shape }) => shape)
      .map(({ shape, value }) => ({
        ...shape,
        volume: value * (shape.east - shape.west) * (shape.south - shape.north),
      }));
  }
  let waiting = 0;
  let rest = 0;
  const redraw = () => {
    waiting ||= requestAnimationFrame(drawAll);
  };
  const drawAll = () => {
    cancelAnimationFrame(waiting);
    waiting = 0;
    for (const map of maps) {
      draw(world, map);
      if (!world.moving) tellOutside(map);
    }
  };
  function refresh() {
    world.palette = paletteOf();
    world.scale = scaleOf(world.data.layers, [
      ...new Set(maps.map((m) => m.layer)),
    ]);
    drawLegends(root, world.data.layers, world.scale);
    for (const map of maps) {
      const layer = world.data.layers[map.layer];
      const note = map.figure.querySelector(".shown");
      map.canvas.setAttribute(
        "aria-label",
        `Map of ${exact(layer.values.length)} ${layer.label}, coloured by ${layer.word}. Arrow keys move, plus and minus zoom, Enter describes the area under the cross.`,
      );
      if (note)
        note.textContent = `${exact(layer.values.length)} ${layer.hue} zone${layer.values.length === 1 ? "" : "s"}`;
    }
    drawAll();
  }
  /* Counts the areas outside the view, with a button that shows them. */
  function tellOutside(map) {
    if (!world.data.frame) return;
    const seen = visible(map, viewOf(world, map));
    const layer = world.data.layers[map.layer];
    const n = layer.shape.reduce(
      (sum, at) => sum + (world.shapes[at] && !seen(world.shapes[at]) ? 1 : 0),
      0,
    );
    map.outside.hidden = n === 0;
    map.outside.firstChild.textContent =
      n === 1
        ? "1 area lies outside this view. "
        : `${exact(n)} areas lie outside this view. `;
  }
  const describe = (map, i) => {
    const layer = world.data.layers[map.layer];
    return [layer.code[i], `${exact(layer.values[i])} ${layer.word}`];
  };

  /* ---- moving ---- */
  function zoomBy(
    factor,
    map,
    px = map.canvas.clientWidth / 2,
    py = map.canvas.clientHeight / 2,
  ) {
    const f = world.fitted;
    const before = viewOf(world, map);
    const ux = (px - before.x) / before.k;
    const uy = (py - before.y) / before.k;
    const least = Math.min(
      1,
      0.5 *
        Math.min(f.width / world.extent.width, f.height / world.extent.height),
    );
    world.view.zoom = Math.min(400, Math.max(least, world.view.zoom * factor));
    const after = viewOf(world, map);
    world.view.dx += (ux - (px - after.x) / after.k) / f.width;
    world.view.dy += (uy - (py - after.y) / after.k) / f.height;
    moved();
  }
  function panBy(dx, dy, map) {
    const k = viewOf(world, map).k;
    world.view.dx -= dx / k / world.fitted.width;
    world.view.dy -= dy / k / world.fitted.height;
    moved();
  }
  function reset(box) {
    world.fitted = box;
    world.view = { zoom: 1, dx: 0, dy: 0 };
    moved();
  }
  function moved() {
    /* Zoomed in, one finger moves the map; otherwise it scrolls the page. */
    for (const m of maps)
      m.canvas.style.touchAction = world.view.zoom > 1.05 ? "none" : "pan-y";
    redraw();
  }
  const dragging = () => {
    world.moving = true;
    clearTimeout(rest);
    rest = setTimeout(() => {
      world.moving = false;
      redraw();
    }, 120);
  };

  /* The smallest area that holds the point: layers are in drawing order, large areas first. */
  function areaAt(map, px, py) {
    const view = viewOf(world, map);
    const x = (px - view.x) / view.k;
    const y = (py - view.y) / view.k;
    const layer = world.data.layers[map.layer];
    for (let i = layer.shape.length - 1; i >= 0; i--)
      if (
        world.shapes[layer.shape[i]] &&
        inside(world.shapes[layer.shape[i]], x, y)
      )
        return i;
    return -1;
  }

  /* ---- fingers, mouse and keys ---- */
  const tip = make("div", "", "tip");
  tip.hidden = true;
  document.body.append(tip);
  for (const map of maps) listen(map);
  function listen(map) {
    const canvas = map.canvas;
    const fingers = new Map();
    let drag = null;
    let pinch = null;
    const at = (e) => {
      const r = canvas.getBoundingClientRect();
      return [e.clientX - r.left, e.clientY - r.top];
    };
    const on = (event, react, options) =>
      canvas.addEventListener(event, react, { signal, ...options });
    const span = () => {
      const [a, b] = [...fingers.values()];
      return {
        length: Math.hypot(a[0] - b[0], a[1] - b[1]),
        x: (a[0] + b[0]) / 2,
        y: (a[1] + b[1]) / 2,
      };
    };
    const leave = () => {
      tip.hidden = true;
      if (map.hover >= 0) {
        map.hover = -1;
        redraw();
      }
    };
    /* Two fingers belong to the map: the page must not scroll away under them. */
    on(
      "touchstart",
      (e) => {
        if (e.touches.length > 1) e.preventDefault();
      },
      { passive: false },
    );
    on("pointerdown", (e) => {
      fingers.set(e.pointerId, at(e));
      canvas.setPointerCapture(e.pointerId);
      if (fingers.size === 2) {
        pinch = span();
        drag = null;
      } else drag = { x: e.clientX, y: e.clientY };
    });
    on("pointermove", (e) => {
      if (fingers.has(e.pointerId)) fingers.set(e.pointerId, at(e));
      if (pinch && fingers.size === 2) {
        const now = span();
        dragging();
        panBy(now.x - pinch.x, now.y - pinch.y, map);
        if (pinch.length > 0)
          zoomBy(now.length / pinch.length, map, now.x, now.y);
        pinch = now;
      } else if (drag) {
        dragging();
        panBy(e.clientX - drag.x, e.clientY - drag.y, map);
        drag = { x: e.clientX, y: e.clientY };
        tip.hidden = true;
      } else if (!pinch) {
        const hover = areaAt(map, ...at(e));
        if (hover !== map.hover) {
          map.hover = hover;
          redraw();
        }
        tip.hidden = hover < 0;
        if (hover < 0) return;
        tip.replaceChildren(
          ...describe(map, hover).map((line, i) =>
            make(i ? "div" : "strong", line),
          ),
        );
        tip.style.left =
          Math.max(4, Math.min(e.clientX + 14, window.innerWidth - 290)) + "px";
        tip.style.top =
          Math.min(e.clientY + 14, window.innerHeight - 120) + "px";
      }
    });
    const up = (e) => {
      fingers.delete(e.pointerId);
      drag = null;
      if (!fingers.size) pinch = null;
      if (e.pointerType === "touch") leave();
    };
    on("pointerup", up);
    on("pointercancel", up);
    on("pointerleave", leave);
    on(
      "wheel",
      (e) => {
        /* The wheel scrolls the page, unless the map has been chosen by a click or a modifier is held. */
        if (!e.ctrlKey && !e.metaKey && document.activeElement !== canvas)
          return;
        e.preventDefault();
        dragging();
        zoomBy(
          Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0022)),
          map,
          ...at(e),
        );
      },
      { passive: false },
    );
    on("dblclick", (e) => zoomBy(2, map, ...at(e)));
    on("keydown", (e) => {
      const step = {
        ArrowLeft: [60, 0],
        ArrowRight: [-60, 0],
        ArrowUp: [0, 60],
        ArrowDown: [0, -60],
      }[e.key];
      if (step) panBy(...step, map);
      else if (e.key === "+" || e.key === "=") zoomBy(1.5, map);
      else if (e.key === "-") zoomBy(1 / 1.5, map);
      else if (e.key === "0") reset(world.extent);
      else if (e.key === "Enter" || e.key === " ") {
        const i = areaAt(map, canvas.clientWidth / 2, canvas.clientHeight / 2);
        map.said.textContent =
          i >= 0
            ? describe(map, i).join(": ") + "."
            : "No area lies under the cross. Move the map with the arrow keys.";
      } else return;
      e.preventDefault();
    });
    on("focus", redraw);
    on("blur", redraw);
    const zoom = make("div", "", "zoom");
    const keys = [
      { text: "+", label: "Zoom in", react: () => zoomBy(1.6, map) },
      { text: "−", label: "Zoom out", react: () => zoomBy(1 / 1.6, map) },
      { text: "⤢", label: "Show everything", react: () => reset(world.extent) },
    ];
    for (const { text, label, react } of keys) {
      const b = make("button", text);
      b.type = "button";
      b.title = label;
      b.setAttribute("aria-label", label);
      b.addEventListener("click", react);
      zoom.append(b);
    }
    map.outside = make("p", "", "outside soft");
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

  matchMedia("(prefers-color-scheme: dark)").addEventListener(
    "change",
    refresh,
    { signal },
  );
  const printing = (now) => {
    document.documentElement.classList.toggle("printing", now);
    refresh();
  };
  addEventListener("beforeprint", () => printing(true), { signal });
  addEventListener("afterprint", () => printing(false), { signal });
  matchMedia("print").addEventListener(
    "change",
    (e) => {
      if (e.matches) printing(true);
    },
    { signal },
  );
  if (maps.length > 12)
    for (const moving of ["scroll", "resize"])
      addEventListener(moving, redraw, { passive: true, signal });
  /* An observer begins with a call, when nothing has another size yet. */
  const asDrawn = ({ canvas, drawn }) =>
    drawn &&
    drawn.width === canvas.clientWidth &&
    drawn.height === canvas.clientHeight;
  const resized = new ResizeObserver(() => {
    if (!maps.every(asDrawn)) redraw();
  });
  resized.observe(root === document ? document.body : root);

  take(data);
  return {
    update: take,
    destroy() {
      gone.abort();
      resized.disconnect();
      tip.remove();
      for (const map of maps) for (const e of map.added) e.remove();
    },
  };
}
