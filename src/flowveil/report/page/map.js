"use strict";
/* Draws the maps of a page on canvases, from the data embedded in it. Nothing is ever requested, unless the page was
   made with a background map and the reader switches it on. */
(() => {
  const source = document.getElementById("map-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const ENDS = ["origin", "destination"];
  const OTHER = { origin: "destination", destination: "origin" };
  const WORD = { origin: "start", destination: "end" };
  const UNIT = { trips: "trips", weight: "weight" };
  const CLASSES = 6;
  const state = { basis: data.bases[0], colour: "volume", lines: 200, selected: null, background: false, grid: true, view: null };

  const exact = (v) => (v === null || v === undefined ? "not known" : v.toLocaleString("en", { maximumFractionDigits: v < 100 ? 2 : 0 }));
  const short = (v) => {
    if (v >= 1e6) return +(v / 1e6).toPrecision(3) + " M";
    if (v >= 1e4) return +(v / 1e3).toPrecision(3) + " k";
    return (+v.toPrecision(3)).toLocaleString("en");
  };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  /* ---- shapes: rings of differences become paths in frame units ---- */
  const decode = (rings) => {
    const path = new Path2D();
    const points = [];
    let west = Infinity, east = -Infinity, north = Infinity, south = -Infinity;
    for (const ring of rings) {
      let x = ring[0], y = ring[1];
      const xy = [x, y];
      path.moveTo(x, y);
      for (let i = 2; i < ring.length; i += 2) {
        x += ring[i]; y += ring[i + 1];
        xy.push(x, y);
        path.lineTo(x, y);
      }
      path.closePath();
      for (let i = 0; i < xy.length; i += 2) {
        if (xy[i] < west) west = xy[i]; if (xy[i] > east) east = xy[i];
        if (xy[i + 1] < north) north = xy[i + 1]; if (xy[i + 1] > south) south = xy[i + 1];
      }
      points.push(xy);
    }
    return { path, points, west, east, north, south };
  };
  const shapes = data.shapes.map(decode);
  const joined = (list) => { const p = new Path2D(); for (const s of list) p.addPath(s.path); return p; };
  const gridShapes = data.grid ? data.grid.shapes.map(decode) : [];
  const grid = gridShapes.length ? joined(gridShapes) : null;
  /* Thousands of boxes are slow to cut at; their common outline is not. */
  const gridWithin = data.grid?.within ? decode(data.grid.within).path : null;
  const gridWidth = gridShapes.length ? gridShapes[0].east - gridShapes[0].west : 0;
  const everyShape = joined(ENDS.flatMap((end) => (data.layers[end]?.shape || []).filter((n) => n >= 0).map((n) => shapes[n])));

  /* Half of a layer's zones are wider than this: edges of smaller ones would hide their colours. */
  const typicalWidth = (layer) => (layer.typical ??= (() => {
    const widths = layer.shape.filter((n) => n >= 0).map((n) => shapes[n].east - shapes[n].west).sort((a, b) => a - b);
    return widths.length ? widths[widths.length >> 1] : 0;
  })());

  const inside = (shape, x, y) => {
    if (x < shape.west || x > shape.east || y < shape.north || y > shape.south) return false;
    let hit = false;
    for (const xy of shape.points) {
      for (let i = 0, j = xy.length - 2; i < xy.length; j = i, i += 2) {
        if (xy[i + 1] > y !== xy[j + 1] > y && x < ((xy[j] - xy[i]) * (y - xy[i + 1])) / (xy[j + 1] - xy[i + 1]) + xy[i]) hit = !hit;
      }
    }
    return hit;
  };

  /* Extent of what is drawn, for the first view. */
  const extent = (() => {
    let west = Infinity, east = -Infinity, north = Infinity, south = -Infinity;
    for (const s of shapes) {
      west = Math.min(west, s.west); east = Math.max(east, s.east);
      north = Math.min(north, s.north); south = Math.max(south, s.south);
    }
    for (const layer of Object.values(data.layers)) {
      (layer.x || []).forEach((x, i) => {
        west = Math.min(west, x); east = Math.max(east, x);
        north = Math.min(north, layer.y[i]); south = Math.max(south, layer.y[i]);
      });
    }
    return { west, east, north, south, width: Math.max(east - west, 1), height: Math.max(south - north, 1) };
  })();
  /* A few far zones can make the rest tiny: the first view holds 98 % of the volume, and "show all" the rest. */
  const busy = (() => {
    const box = { ...extent };
    for (const [axis, low, high] of [["x", "west", "east"], ["y", "north", "south"]]) {
      const ends = [];
      for (const layer of data.layers.origin ? ENDS.map((end) => data.layers[end]) : Object.values(data.layers)) {
        (layer[axis] || []).forEach((p, i) => {
          const s = shapes[layer.shape[i]];
          ends.push([s ? s[low] : p, s ? s[high] : p, layer[state.basis] ? layer[state.basis][i] : 1]);
        });
      }
      const total = ends.reduce((sum, e) => sum + e[2], 0);
      const edge = (side, sign) => {
        const sorted = [...ends].sort((a, b) => sign * (a[side] - b[side]));
        let reached = 0;
        for (const e of sorted) { reached += e[2]; if (reached >= total * 0.985) return e[side]; }
        return sorted.length ? sorted[sorted.length - 1][side] : 0;
      };
      if (total > 0) { box[high] = edge(1, 1); box[low] = edge(0, -1); }
    }
    box.width = Math.max(box.east - box.west, 1); box.height = Math.max(box.south - box.north, 1);
    return box.width * box.height < 0.4 * extent.width * extent.height ? box : extent;
  })();
  let fitted = busy;

  /* ---- volumes, with and without a selection ---- */
  const flows = data.flows;
  const rank = Object.fromEntries(data.bases.map((b) => [b, flows[b] ? flows[b].map((_, i) => i).sort((p, q) => flows[b][q] - flows[b][p] || p - q) : []]));
  const matches = (i) => !state.selected || flows[state.selected.end][i] === state.selected.zone;

  function valuesOf(name) {
    const layer = data.layers[name];
    if (layer.values) return layer.values;
    const end = layer.end || name;
    let volume = layer[state.basis];
    const selected = state.selected;
    if (selected && selected.end !== end && !layer.fixed) {
      volume = new Array(layer.code.length).fill(0);
      flows[selected.end].forEach((z, i) => { if (z === selected.zone) volume[flows[end][i]] += flows[state.basis][i]; });
    }
    if (state.colour === "density") return volume.map((v, i) => (layer.area[i] ? v / layer.area[i] : 0));
    if (state.colour === "tiles") return layer.tiles;
    if (state.colour === "level") return layer.level;
    return volume;
  }

  /* Class limits that people can read: 1, 2 or 5 times a power of ten, at most six classes. They are spread over what
     96 % of the zones have: a few huge or tiny values would stretch them until all others have one colour. */
  function limitsOf(values) {
    const positive = values.filter((v) => v > 0).sort((a, b) => a - b);
    if (!positive.length) return [];
    const cut = Math.floor(positive.length * 0.02);
    const low = positive[cut], high = positive[positive.length - 1 - cut];
    if (high / low < 4) {
      const raw = (high - low) / CLASSES;
      if (!(raw > 0)) return [];
      const power = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
      const out = [];
      for (let v = Math.ceil((low + step / 1e6) / step) * step; v < high && out.length < CLASSES - 1; v += step) out.push(+v.toPrecision(12));
      return out;
    }
    const candidates = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++) for (const m of [1, 2, 5]) {
      const v = +(m * 10 ** e).toPrecision(6);
      if (v > low && v < high) candidates.push(v);
    }
    /* What was cut off above is a class of its own. */
    if (candidates.length && positive[positive.length - 1] > 2 * high) candidates.push(nextRound(high));
    const out = [];
    const n = Math.min(CLASSES - 1, candidates.length);
    for (let i = 0; i < n; i++) out.push(candidates[Math.round(((i + 0.5) * candidates.length) / n - 0.5)]);
    return [...new Set(out)];
  }
  const nextRound = (v) => {
    const power = 10 ** Math.floor(Math.log10(v));
    return +([1, 2, 5, 10].map((m) => m * power).find((s) => s >= v * (1 - 1e-9))).toPrecision(6);
  };
  const classOf = (limits, v) => { let c = 0; while (c < limits.length && v >= limits[c]) c++; return c; };
  const spread = (n, steps) => Array.from({ length: n }, (_, i) => (n === 1 ? steps - 2 : Math.round((i * (steps - 1)) / (n - 1))));

  let scale = null;
  function rescale() {
    const names = [...new Set(maps.map((m) => m.layer).filter((l) => l !== "flows"))];
    const groups = {};
    for (const name of names) {
      const layer = data.layers[name];
      const hue = layer.hue || layer.end || name;
      (groups[layer.scale || "main"] ||= []).push({ name, hue, values: valuesOf(name), layer });
    }
    scale = { of: {}, shown: {} };
    for (const [group, members] of Object.entries(groups)) {
      const byLevel = state.colour === "level" && !members[0].layer.values;
      /* With a selection the selected end keeps its totals, faded and on a scale of its own; the legend shows the other end's. */
      const aside = state.selected && !byLevel ? members.filter((m) => (m.layer.end || m.name) === state.selected.end && !m.layer.fixed) : [];
      const shown = members.filter((m) => !aside.includes(m));
      scale.shown[group] = shown;
      const values = shown.flatMap((m) => m.values);
      if (byLevel) {
        const levels = [...new Set(values)].sort((a, b) => a - b);
        const step = spread(levels.length, 8);
        for (const m of members) scale.of[m.name] = { levels, classOf: (v) => levels.indexOf(v), colours: levels.map((_, i) => css("level-" + (step[i] + 1))) };
      } else {
        for (const part of [shown, aside]) {
          const own = part === shown ? values : part.flatMap((m) => m.values);
          const limits = limitsOf(own);
          let high = 0, low = Infinity;
          for (const v of own) if (v > 0) { high = Math.max(high, v); low = Math.min(low, v); }
          const step = spread(limits.length + 1, CLASSES);
          for (const m of part) scale.of[m.name] = { limits, low, high, faded: part === aside, classOf: (v) => (v > 0 ? classOf(limits, v) : -1), colours: [...limits, 0].map((_, i) => css(m.hue + "-" + (step[i] + 1))) };
        }
      }
      for (const m of members) {
        const s = scale.of[m.name];
        s.classes = m.values.map(s.classOf);
        s.values = m.values;
        s.paths = null;
      }
    }
    drawLegend();
  }

  /* ---- one map ---- */
  const maps = all("figure.map[data-layer]").map((figure) => ({ figure, layer: figure.dataset.layer, canvas: $("canvas", figure), context: $("canvas", figure).getContext("2d") }));

  function fit(map) {
    const { clientWidth: w, clientHeight: h } = map.canvas;
    const k = Math.min(w / (fitted.width * 1.08), h / (fitted.height * 1.08));
    return { k, x: w / 2 - k * (fitted.west + fitted.width / 2), y: h / 2 - k * (fitted.north + fitted.height / 2) };
  }
  /* The view is kept relative to the fitted one, so that maps of different sizes move together. */
  const viewOf = (map) => {
    const base = fit(map);
    const { zoom, dx, dy } = state.view;
    const { clientWidth: w, clientHeight: h } = map.canvas;
    const k = base.k * zoom;
    const cx = (w / 2 - base.x) / base.k + dx * fitted.width, cy = (h / 2 - base.y) / base.k + dy * fitted.height;
    return { k, x: w / 2 - k * cx, y: h / 2 - k * cy };
  };
  state.view = { zoom: 1, dx: 0, dy: 0 };

  const colours = () => Object.fromEntries(["ink", "paper", "soft", "line", "map", "outline", "grid", "origin", "destination", "focus"].map((n) => [n, css(n)]));
  let palette = null;

  function draw(map) {
    const { canvas, context: c } = map;
    const w = canvas.clientWidth, h = canvas.clientHeight;
    if (!w || !h) return;
    const printed = document.documentElement.classList.contains("printing");
    if (maps.length > 12 && !printed) {
      /* A page of many maps draws those in sight. */
      const box = canvas.getBoundingClientRect();
      if (box.bottom < -300 || box.top > innerHeight + 300) return;
    }
    const density = Math.max(window.devicePixelRatio || 1, printed ? 3 : 1);
    if (canvas.width !== Math.round(w * density) || canvas.height !== Math.round(h * density)) {
      canvas.width = Math.round(w * density); canvas.height = Math.round(h * density);
    }
    const view = viewOf(map);
    /* What is in view, in degrees: west, south, east, north. */
    canvas.dataset.view = [...toDegrees(view, 0, h).reverse(), ...toDegrees(view, w, 0).reverse()].map((v) => v.toFixed(6)).join();
    c.setTransform(density, 0, 0, density, 0, 0);
    c.globalAlpha = 1;
    c.fillStyle = palette.map;
    c.fillRect(0, 0, w, h);
    if (state.background) drawBackground(map, view);
    const toUnits = () => c.setTransform(density * view.k, 0, 0, density * view.k, density * view.x, density * view.y);
    const toPixels = () => c.setTransform(density, 0, 0, density, 0, 0);
    if (map.layer === "flows") drawFlows(map, view, toUnits, toPixels);
    else drawZones(map, view, toUnits, toPixels);
    drawScaleBar(map, view);
    tellOutside(map);
    if (canvas === document.activeElement && canvas.matches(":focus-visible")) {
      c.strokeStyle = palette.focus; c.lineWidth = 2; c.beginPath();
      c.moveTo(w / 2 - 12, h / 2); c.lineTo(w / 2 + 12, h / 2); c.moveTo(w / 2, h / 2 - 12); c.lineTo(w / 2, h / 2 + 12); c.stroke();
    }
  }

  /* Hexagons of a finer resolution stick out of coarser ones: cut them off at the zones. */
  function drawGrid(c, view, within, colour, opacity) {
    if (!grid || !state.grid || gridWidth * view.k < 4) return;
    c.save();
    if (gridWithin) c.clip(gridWithin, "evenodd"); else c.clip(within(), "nonzero");
    c.lineWidth = 0.7 / view.k; c.strokeStyle = colour; c.globalAlpha = opacity;
    c.stroke(grid);
    c.restore();
  }

  const layered = (layer) => layer.overlap ?? !(data.homogeneous || layer.fixed);

  function drawZones(map, view, toUnits, toPixels) {
    const c = map.context, layer = data.layers[map.layer], s = scale.of[map.layer];
    const opacity = s.faded ? 0.3 : state.background ? 0.6 : layered(layer) ? 0.85 : 1;
    toUnits();
    const seen = visible(map, view);
    const pixel = view.k * typicalWidth(layer);
    c.strokeStyle = palette.outline;
    c.lineWidth = (pixel < 9 ? 0.35 : 0.8) / view.k;
    c.globalAlpha = opacity;
    if (!layered(layer)) {
      if (!s.paths) {
        s.paths = s.colours.map(() => new Path2D());
        s.edge = new Path2D();
        layer.shape.forEach((shape, i) => { if (shape >= 0) { s.edge.addPath(shapes[shape].path); if (s.classes[i] >= 0) s.paths[s.classes[i]].addPath(shapes[shape].path); } });
      }
      s.paths.forEach((path, i) => { c.fillStyle = s.colours[i]; c.fill(path); });
      if (pixel > 4) c.stroke(s.edge);
    } else {
      /* Overlapping zones: large ones first, each with its own edge, so that small ones lie visibly on top. */
      for (let i = 0; i < layer.code.length; i++) {
        const shape = shapes[layer.shape[i]];
        if (!shape || !seen(shape)) continue;
        if (s.classes[i] >= 0) { c.fillStyle = s.colours[s.classes[i]]; c.fill(shape.path); }
        c.stroke(shape.path);
      }
    }
    c.globalAlpha = 1;
    if (!layer.fixed) drawGrid(c, view, () => (map.cover ||= joined(layer.shape.filter((n) => n >= 0).map((n) => shapes[n]))), palette.soft, 0.22);
    toPixels();
    layer.shape.forEach((shape, i) => {
      if (shape >= 0 || s.classes[i] < 0 || layer.lat[i] === null) return;
      c.fillStyle = s.colours[s.classes[i]]; c.strokeStyle = palette.outline; c.lineWidth = 0.8;
      c.beginPath(); c.arc(view.x + view.k * layer.x[i], view.y + view.k * layer.y[i], 4, 0, 7); c.fill(); c.stroke();
    });
    const selected = state.selected;
    if (selected && (layer.end || map.layer) === selected.end && !layer.fixed) outline(map, view, layer, selected.zone, palette.ink, 3);
    if (selected && (layer.end || map.layer) !== selected.end && !layer.fixed) outline(map, view, data.layers[selected.end], selected.zone, palette[selected.end], 2, [6, 4]);
    if (map.hover >= 0) outline(map, view, layer, map.hover, palette.ink, 1.6);
  }

  function outline(map, view, layer, zone, colour, width, dash = []) {
    const c = map.context, shape = shapes[layer.shape[zone]];
    c.strokeStyle = colour; c.lineWidth = width; c.setLineDash(dash);
    if (shape) {
      c.save();
      const t = c.getTransform();
      c.setTransform(t.a * view.k, 0, 0, t.d * view.k, t.a * view.x, t.d * view.y);
      c.lineWidth = width / view.k; c.setLineDash(dash.map((d) => d / view.k));
      c.stroke(shape.path); c.restore();
    } else { c.beginPath(); c.arc(view.x + view.k * layer.x[zone], view.y + view.k * layer.y[zone], 6, 0, 7); c.stroke(); }
    c.setLineDash([]);
  }

  const visible = (map, view) => {
    const west = -view.x / view.k, north = -view.y / view.k;
    const east = west + map.canvas.clientWidth / view.k, south = north + map.canvas.clientHeight / view.k;
    return (s) => s.east >= west && s.west <= east && s.south >= north && s.north <= south;
  };

  const isWithin = flows.origin.map((o, i) => {
    const a = data.layers.origin, b = data.layers.destination, d = flows.destination[i];
    return a.code[o] === b.code[d] || (a.x && a.x[o] === b.x[d] && a.y[o] === b.y[d]);
  });
  /* The largest flows that fit the selection, smallest first, so that the largest lie on top. */
  function shownFlows() {
    const between = [], within = [];
    for (const i of rank[state.basis]) {
      if (between.length >= state.lines && within.length >= state.lines) break;
      if (!matches(i)) continue;
      const list = isWithin[i] ? within : between;
      if (list.length < state.lines) list.push(i);
    }
    return { between: between.reverse(), within: within.reverse() };
  }

  function drawFlows(map, view, toUnits, toPixels) {
    const c = map.context, { origin, destination } = data.layers;
    toUnits();
    c.lineWidth = 0.7 / view.k; c.strokeStyle = palette.outline; c.globalAlpha = data.boxes ? 0.15 : 0.45;
    if (view.k * typicalWidth(origin) > 4) c.stroke(everyShape);
    drawGrid(c, view, () => everyShape, palette.grid, 0.8);
    toPixels();
    c.globalAlpha = 1;
    const { between, within } = shownFlows();
    const volume = flows[state.basis];
    const largest = (list) => list.reduce((most, i) => Math.max(most, volume[i]), 0) || 1;
    const mostWithin = largest(within), mostBetween = largest(between);
    for (const i of within) {
      /* Inside one zone: a disc at its centre, with its own scale, because such flows dwarf the others. */
      const o = flows.origin[i], share = volume[i] / mostWithin;
      c.globalAlpha = 0.16; c.fillStyle = palette.origin;
      c.beginPath(); c.arc(view.x + view.k * origin.x[o], view.y + view.k * origin.y[o], 2 + 15 * Math.sqrt(share), 0, 7); c.fill();
      c.globalAlpha = 0.5; c.strokeStyle = palette.origin; c.lineWidth = 0.8; c.stroke();
    }
    c.lineCap = "round";
    for (const i of between) {
      const o = flows.origin[i], d = flows.destination[i];
      const x0 = view.x + view.k * origin.x[o], y0 = view.y + view.k * origin.y[o];
      const x1 = view.x + view.k * destination.x[d], y1 = view.y + view.k * destination.y[d];
      const share = volume[i] / mostBetween;
      c.globalAlpha = 0.25 + 0.65 * Math.sqrt(share);
      c.lineWidth = 0.8 + 8.2 * share ** 0.8;
      const gradient = c.createLinearGradient(x0, y0, x1, y1);
      gradient.addColorStop(0.1, palette.origin); gradient.addColorStop(0.9, palette.destination);
      c.strokeStyle = gradient;
      /* Bent to the right of the way, so that there and back are two lines. */
      const bend = 0.18;
      c.beginPath(); c.moveTo(x0, y0);
      c.quadraticCurveTo((x0 + x1) / 2 - bend * (y1 - y0), (y0 + y1) / 2 + bend * (x1 - x0), x1, y1);
      c.stroke();
    }
    c.globalAlpha = 1;
    if (state.selected) outline(map, view, data.layers[state.selected.end], state.selected.zone, palette.ink, 3);
    if (map.hover >= 0) outline(map, view, data.layers[map.hoverEnd || "origin"], map.hover, palette.ink, 1.6);
  }

  /* How many metres a pixel is, at the middle of the map. */
  function drawScaleBar(map, view) {
    const c = map.context, h = map.canvas.clientHeight;
    const middle = data.frame.north + ((h / 2 - view.y) / view.k) * data.frame.perUnit;
    const lat = Math.atan(Math.sinh(Math.PI * (1 - 2 * middle)));
    const metres = (40075017 * Math.cos(lat) * data.frame.perUnit) / view.k;
    const raw = metres * 90, power = 10 ** Math.floor(Math.log10(raw));
    const length = [1, 2, 5].map((m) => m * power).filter((m) => m <= raw).pop();
    const px = length / metres, text = length >= 1000 ? length / 1000 + " km" : length + " m";
    c.font = "12px system-ui, sans-serif";
    c.globalAlpha = 0.82; c.fillStyle = palette.map; c.fillRect(6, h - 30, Math.max(px, c.measureText(text).width) + 16, 24);
    c.globalAlpha = 1; c.strokeStyle = palette.ink; c.lineWidth = 1.5;
    c.beginPath(); c.moveTo(13, h - 15); c.lineTo(13, h - 11); c.lineTo(13 + px, h - 11); c.lineTo(13 + px, h - 15); c.stroke();
    c.fillStyle = palette.ink; c.fillText(text, 14, h - 17);
    drawPlace(map, view, 24 + Math.max(px, c.measureText(text).width), metres);
  }

  const toDegrees = (view, px, py) => {
    const x = data.frame.west + ((px - view.x) / view.k) * data.frame.perUnit, y = data.frame.north + ((py - view.y) / view.k) * data.frame.perUnit;
    const lon = (((x * 360 - 180 + 540) % 360) + 360) % 360 - 180;
    return [(Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180) / Math.PI, lon];
  };
  const degreesText = (view, w, h, metres) => {
    const digits = Math.max(0, Math.min(5, Math.round(Math.log10(111320 / (metres * 20)))));
    return toDegrees(view, w / 2, h / 2).map((v, i) => Math.abs(v).toFixed(digits) + "° " + (i ? (v < 0 ? "W" : "E") : v < 0 ? "S" : "N")).join(", ");
  };
  /* North, and the coordinates of the middle: enough to find the area in an atlas where there is no background map. */
  function drawPlace(map, view, left, metres) {
    const c = map.context, w = map.canvas.clientWidth, h = map.canvas.clientHeight;
    const text = "middle: " + degreesText(view, w, h, metres);
    c.globalAlpha = 0.82; c.fillStyle = palette.map;
    c.fillRect(left, h - 30, c.measureText(text).width + 12, 24); c.fillRect(6, 6, 24, 36);
    c.globalAlpha = 1; c.fillStyle = palette.ink;
    c.fillText(text, left + 6, h - 14);
    c.beginPath(); c.moveTo(18, 9); c.lineTo(23, 24); c.lineTo(18, 20); c.lineTo(13, 24); c.closePath(); c.fill();
    c.textAlign = "center"; c.fillText("N", 18, 38); c.textAlign = "start";
  }

  /* What the view does not show is said, with a way to see it. */
  function tellOutside(map) {
    const seen = visible(map, viewOf(map));
    let n = 0;
    for (const name of map.layer === "flows" ? ENDS : [map.layer]) {
      const layer = data.layers[name];
      layer.code.forEach((_, i) => {
        const shape = shapes[layer.shape[i]];
        if (!shape && (!layer.x || layer.lat[i] === null)) return;
        if (!seen(shape || { west: layer.x[i], east: layer.x[i], north: layer.y[i], south: layer.y[i] })) n++;
      });
    }
    if (n === map.away) return;
    map.away = n;
    map.outside.hidden = n === 0;
    map.outside.firstChild.textContent = n === 1 ? "1 zone lies outside this view. " : `${exact(n)} zones lie outside this view. `;
  }

  /* ---- the background map: only in pages that were made with one, only when switched on ---- */
  const tiles = new Map();
  function drawBackground(map, view) {
    const c = map.context, w = map.canvas.clientWidth, h = map.canvas.clientHeight, f = data.frame;
    const world = view.k / f.perUnit;
    const z = Math.max(0, Math.min(data.background.maxZoom, Math.round(Math.log2(world / 256))));
    const n = 2 ** z, size = world / n;
    const left = f.west * world - view.x, top = f.north * world - view.y;
    for (let x = Math.floor(left / size); x * size < left + w; x++) for (let y = Math.max(0, Math.floor(top / size)); y < n && y * size < top + h; y++) {
      const url = data.background.url.replace("{z}", z).replace("{x}", ((x % n) + n) % n).replace("{y}", y);
      let image = tiles.get(url);
      if (!image) { image = new Image(); image.onload = () => maps.forEach(draw); image.src = url; tiles.set(url, image); }
      if (image.complete && image.naturalWidth) c.drawImage(image, x * size - left, y * size - top, size + 0.5, size + 0.5);
    }
  }

  /* ---- which zone is where: the smallest one that holds the point; again at the same point: the next larger ---- */
  function zonesAt(map, px, py) {
    const view = viewOf(map), x = (px - view.x) / view.k, y = (py - view.y) / view.k;
    const name = map.layer === "flows" ? null : map.layer;
    const found = [];
    for (const layerName of name ? [name] : ENDS) {
      const layer = data.layers[layerName];
      for (let i = layer.code.length - 1; i >= 0; i--) {
        const shape = shapes[layer.shape[i]];
        if (shape ? inside(shape, x, y) : Math.hypot(layer.x[i] - x, layer.y[i] - y) * view.k < 6) found.push({ layer: layerName, zone: i });
      }
    }
    return found;
  }

  /* ---- words ---- */
  const codeOf = (end, zone) => { const l = data.layers[end], name = l.name && l.name[zone]; return name ? `${name} (${l.code[zone]})` : l.code[zone]; };
  /* Where zones overlap, trips of the same place may be counted in another zone. */
  const counted = (end) => (data.homogeneous ? WORD[end] + " here" : `are counted in this ${data.boxes ? "box" : "zone"}`);
  function describe(name, zone) {
    const layer = data.layers[name];
    const end = layer.end || name;
    const lines = [...(layer.name && layer.name[zone] ? [layer.name[zone]] : []), layer.code[zone]];
    if (layer.values) { lines.push(exact(layer.values[zone]) + " " + (layer.word || "")); return lines; }
    if (state.selected && state.selected.end !== end && !layer.fixed) {
      let sum = 0;
      flows[end].forEach((z, i) => { if (z === zone && matches(i)) sum += flows[state.basis][i]; });
      lines.push((state.basis === "trips" ? exact(sum) + " trips" : "weight " + exact(sum)) + (end === "destination" ? " from " : " to ") + "the selected zone");
    }
    for (const b of data.bases) if (layer[b]) lines.push(b === "trips" ? `${exact(layer[b][zone])} trips ${counted(end)}` : `weight ${exact(layer[b][zone])}`);
    const tilesText = layer.tiles[zone] === null ? "" : layer.tiles[zone] === 1 ? "1 tile" : exact(layer.tiles[zone]) + " possible tiles";
    lines.push([tilesText, layer.area[zone] === null ? "" : exact(layer.area[zone]) + " km²", data.boxes || layer.level[zone] === null ? "" : "level " + layer.level[zone]].filter(Boolean).join(", "));
    return lines;
  }

  function tell() {
    const box = $("#selected"), selected = state.selected;
    if (!box) return;
    $("#clear").disabled = !selected;
    if (!selected) { box.innerHTML = "<p class='soft'>No zone is selected. Click one on a map, choose one in a table, or type its code above: the maps then show where its trips go or come from.</p>"; return; }
    const { end, zone } = selected, other = OTHER[end], layer = data.layers[end];
    const partners = flows[end].reduce((n, z) => n + (z === zone), 0);
    const held = layer.cells[zone] > partners ? ` The page holds ${exact(partners)} of its ${exact(layer.cells[zone])} cells, the largest.` : "";
    const lines = describe(end, zone);
    box.textContent = "";
    const head = document.createElement("p"), strong = document.createElement("strong"), code = document.createElement("code");
    strong.textContent = (end === "origin" ? "Origin" : "Destination") + " zone ";
    code.textContent = lines[0];
    head.append(strong, code, ": " + lines.slice(1).join("; ") + ".");
    const more = document.createElement("p");
    more.textContent = `Its trips ${end === "origin" ? "go to" : "come from"} ${exact(layer.cells[zone])} ${other} zone${layer.cells[zone] === 1 ? "" : "s"}.${held}`;
    if (layer.lat[zone] !== null) more.textContent += ` Centre: ${layer.lat[zone].toFixed(4)}, ${layer.lon[zone].toFixed(4)}.`;
    box.append(head, more);
  }

  /* ---- tables ---- */
  const ROWS = 100;
  const cell = (text, kind) => { const td = document.createElement("td"); if (kind) td.className = kind; td.textContent = text; return td; };
  const zoneCell = (end, zone) => {
    const td = document.createElement("td"), button = document.createElement("button");
    button.type = "button"; button.className = "zone"; button.textContent = codeOf(end, zone);
    button.setAttribute("aria-label", `Select ${end} zone ${codeOf(end, zone)}`);
    button.addEventListener("click", () => select(end, zone, true));
    td.append(button);
    return td;
  };
  function fillTables() {
    const body = $("#flow-rows");
    if (body) {
      body.textContent = "";
      let n = 0, total = 0;
      for (const i of rank[state.basis]) {
        if (!matches(i)) continue;
        total++;
        if (n >= ROWS) continue;
        const tr = document.createElement("tr");
        if (n >= 20) tr.className = "screen";
        tr.append(zoneCell("origin", flows.origin[i]), zoneCell("destination", flows.destination[i]), ...data.bases.map((b) => cell(exact(flows[b][i]), "number")));
        body.append(tr); n++;
      }
      $("#flow-count").textContent = state.selected ? `${exact(n)} of the ${exact(total)} flows of the selected zone.` : `The ${exact(n)} largest of ${exact(data.count.flows)}.`;
    }
    const zoneBody = $("#zone-rows");
    if (zoneBody) {
      const end = $("#zone-end").value, layer = data.layers[end], wanted = $("#zone-filter").value.trim().toLowerCase();
      const order = layer.code.map((_, i) => i).filter((i) => !wanted || layer.code[i].toLowerCase().includes(wanted));
      order.sort((p, q) => layer[state.basis][q] - layer[state.basis][p] || p - q);
      zoneBody.textContent = "";
      order.slice(0, ROWS).forEach((i, n) => {
        const tr = document.createElement("tr");
        if (n >= 20) tr.className = "screen";
        tr.append(zoneCell(end, i), ...data.bases.map((b) => cell(exact(layer[b][i]), "number")), cell(exact(layer.tiles[i]), "number"), cell(exact(layer.area[i]), "number"), ...(data.boxes ? [] : [cell(exact(layer.level[i]), "number")]));
        zoneBody.append(tr);
      });
      $("#zone-count").textContent = `${exact(Math.min(order.length, ROWS))} of ${exact(wanted ? order.length : data.count[end])} ${end} zones.`;
    }
  }

  /* ---- legend ---- */
  function drawLegend() {
    for (const place of all(".legend[data-scale]")) {
      const members = scale.shown[place.dataset.scale];
      if (!members || !members.length) continue;
      const s = scale.of[members[0].name];
      const filter = state.selected && state.colour !== "tiles" && state.colour !== "level" ? (state.selected.end === "origin" ? " from the selected zone" : " to the selected zone") : "";
      const title = members[0].layer.values ? members[0].layer.title : { volume: cap(UNIT[state.basis]) + filter, density: cap(UNIT[state.basis]) + " per km²" + filter, tiles: "Possible tiles in the zone", level: "Level (higher is finer)" }[state.colour];
      const heads = s.levels ? s.levels.map(String) : [...s.limits, null].map((_, i) => {
        if (!s.high) return "none";
        if (i === s.limits.length) return `${short(i ? s.limits[i - 1] : s.low)} or more`;
        if (i) return `${short(s.limits[i - 1])} – ${short(s.limits[i])}`;
        /* The smallest value is shown where it is a plain number, as k is; a fraction would only confuse. */
        return Number.isInteger(s.low) && s.low < 1000 && s.low * 10 > s.limits[0] ? `${short(s.low)} – ${short(s.limits[0])}` : `under ${short(s.limits[0])}`;
      });
      const rows = s.levels ? [members[0]] : members.filter((m, i) => members.findIndex((o) => o.hue === m.hue) === i);
      const table = document.createElement("table");
      const caption = document.createElement("caption");
      caption.textContent = title; caption.style.textAlign = "left";
      table.append(caption);
      for (const m of rows) {
        const tr = table.insertRow(), th = document.createElement("th");
        th.scope = "row"; th.textContent = s.levels ? "" : m.layer.label || (m.name === "origin" ? "origins" : "destinations");
        tr.append(th);
        scale.of[m.name].colours.forEach((colour) => { const td = tr.insertCell(), i = document.createElement("span"); i.className = "swatch"; i.style.background = colour; td.append(i); });
      }
      const tr = table.insertRow();
      tr.insertCell();
      heads.forEach((text) => {
        const td = tr.insertCell();
        for (const [kind, words] of [["long", text], ["brief", text.split(" – ")[0].replace(" or more", "+").replace("under ", "<")]]) {
          const span = document.createElement("span");
          span.className = kind; span.textContent = words; td.append(span);
        }
      });
      place.textContent = "";
      place.append(table);
    }
  }
  const cap = (text) => text[0].toUpperCase() + text.slice(1);

  /* ---- what the reader does ---- */
  const tip = document.createElement("div");
  tip.className = "tip"; tip.hidden = true; document.body.append(tip);
  let waiting = false;
  const redraw = () => { if (waiting) return; waiting = true; requestAnimationFrame(() => { waiting = false; maps.forEach(draw); }); };

  /* Below the map, for those who look and for those who listen. */
  const say = (map, words) => { map.said.textContent = words; };

  function select(end, zone, show = false) {
    state.selected = end === null ? null : { end, zone };
    for (const map of maps) map.said.textContent = "";
    if (end !== null && show) bring(end, zone);
    refresh();
  }
  /* Move every map as little as needed to have the whole zone in sight; zoom out where it is larger than the view. */
  function bring(end, zone) {
    const layer = data.layers[end], shape = shapes[layer.shape[zone]];
    if (!maps.length || (!shape && layer.lat[zone] === null)) return;
    const box = shape || { west: layer.x[zone], east: layer.x[zone], north: layer.y[zone], south: layer.y[zone] };
    const half = () => maps.reduce(([w, h], map) => {
      const k = viewOf(map).k, room = 0.92;
      return map.canvas.clientWidth ? [Math.min(w, (room * map.canvas.clientWidth) / 2 / k), Math.min(h, (room * map.canvas.clientHeight) / 2 / k)] : [w, h];
    }, [Infinity, Infinity]);
    let [w, h] = half();
    const factor = Math.max(1, (box.east - box.west) / (2 * w), (box.south - box.north) / (2 * h));
    state.view.zoom /= factor;
    [w, h] = [w * factor, h * factor];
    const x = fitted.west + fitted.width / 2 + state.view.dx * fitted.width, y = fitted.north + fitted.height / 2 + state.view.dy * fitted.height;
    state.view.dx += (Math.min(Math.max(x, box.east - w), box.west + w) - x) / fitted.width;
    state.view.dy += (Math.min(Math.max(y, box.south - h), box.north + h) - y) / fitted.height;
    moved();
  }
  function refresh() { palette = colours(); rescale(); tell(); fillTables(); labels(); redraw(); }

  function labels() {
    for (const map of maps) {
      const layer = data.layers[map.layer];
      const n = map.layer === "flows" ? 0 : layer.code.length;
      const selected = state.selected ? ` Filtered by ${state.selected.end} zone ${codeOf(state.selected.end, state.selected.zone)}.` : "";
      const what = map.layer === "flows" ? `Map of the ${exact(Math.min(state.lines, flows.origin.length))} largest flows as curves from origin to destination.` : `Map of ${exact(n)} ${layer.label || map.layer + " zones"}, coloured by ${state.colour === "level" ? "level" : state.colour}.`;
      map.canvas.setAttribute("aria-label", what + selected + " Arrow keys move, plus and minus zoom, Enter selects the zone under the cross, Escape clears. The tables below hold the same numbers.");
      const note = $(".shown", map.figure);
      if (note && map.layer === "flows") {
        const { between, within } = shownFlows();
        note.textContent = `the ${exact(between.length)} largest between two zones${state.selected ? ", of the selected zone" : ""}; ${exact(within.length)} inside one`;
      }
    }
  }

  function zoomBy(factor, map, px, py) {
    const { clientWidth: w, clientHeight: h } = map.canvas;
    const before = viewOf(map);
    const x = (px ?? w / 2), y = (py ?? h / 2);
    const ux = (x - before.x) / before.k, uy = (y - before.y) / before.k;
    const least = Math.min(1, fitted === extent ? 1 : 0.5 * Math.min(fitted.width / extent.width, fitted.height / extent.height));
    state.view.zoom = Math.min(400, Math.max(least, state.view.zoom * factor));
    const after = viewOf(map);
    state.view.dx += (ux - (x - after.x) / after.k) / fitted.width;
    state.view.dy += (uy - (y - after.y) / after.k) / fitted.height;
    moved();
  }
  function panBy(dx, dy, map) {
    const k = viewOf(map).k;
    state.view.dx -= dx / k / fitted.width; state.view.dy -= dy / k / fitted.height;
    moved();
  }
  function reset(box) { fitted = box; state.view = { zoom: 1, dx: 0, dy: 0 }; moved(); }
  function moved() {
    /* Zoomed in, one finger moves the map; otherwise it scrolls the page. */
    for (const m of maps) m.canvas.style.touchAction = state.view.zoom > 1.05 ? "none" : "pan-y";
    redraw();
  }

  let last = { key: "", n: 0 };
  function pick(map, px, py, keyboard = false) {
    const found = zonesAt(map, px, py).filter((f) => !data.layers[f.layer].fixed && !data.layers[f.layer].values);
    if (!found.length) {
      if (!keyboard) return;
      /* Zones that cannot be selected can still be described. */
      const here = zonesAt(map, px, py)[0];
      say(map, here ? describe(here.layer, here.zone).join(", ") + "." : "No zone lies under the cross. Move the map with the arrow keys, or choose a zone in the table.");
      return;
    }
    const key = map.layer + found.map((f) => f.layer + f.zone).join();
    last = key === last.key ? { key, n: last.n + 1 } : { key, n: 0 };
    const chosen = found[last.n % (found.length + 1)];
    if (chosen) select(data.layers[chosen.layer].end || chosen.layer, chosen.zone); else select(null);
  }

  for (const map of maps) {
    const canvas = map.canvas;
    map.hover = -1;
    let drag = null;
    const at = (e) => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    canvas.addEventListener("pointerdown", (e) => { drag = { x: e.clientX, y: e.clientY, moved: false }; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", (e) => {
      if (drag) {
        const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
        if (!drag.moved && Math.hypot(dx, dy) < 4) return;
        drag.moved = true; canvas.classList.add("dragging");
        panBy(dx, dy, map); drag.x = e.clientX; drag.y = e.clientY;
        tip.hidden = true;
        return;
      }
      const found = zonesAt(map, ...at(e))[0];
      const hover = found ? found.zone : -1;
      if (hover !== map.hover || (found && found.layer !== map.hoverEnd)) { map.hover = hover; map.hoverEnd = found && found.layer; redraw(); }
      tip.hidden = !found;
      if (found) {
        tip.textContent = "";
        describe(found.layer, found.zone).forEach((line, i) => { const p = document.createElement(i ? "div" : "strong"); p.textContent = line; tip.append(p); });
        tip.style.left = Math.min(e.clientX + 14, window.innerWidth - 280) + "px";
        tip.style.top = Math.min(e.clientY + 14, window.innerHeight - 110) + "px";
      }
    });
    const leave = () => { tip.hidden = true; if (map.hover >= 0) { map.hover = -1; redraw(); } };
    canvas.addEventListener("pointerleave", leave);
    canvas.addEventListener("pointerup", (e) => {
      canvas.classList.remove("dragging");
      if (drag && !drag.moved) pick(map, ...at(e));
      drag = null;
      if (e.pointerType === "touch") leave();
    });
    canvas.addEventListener("pointercancel", () => { drag = null; canvas.classList.remove("dragging"); leave(); });
    canvas.addEventListener("wheel", (e) => {
      /* The wheel scrolls the page, unless the map has been chosen by a click or a modifier is held. */
      if (!e.ctrlKey && !e.metaKey && document.activeElement !== canvas) return;
      e.preventDefault();
      zoomBy(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0022)), map, ...at(e));
    }, { passive: false });
    canvas.addEventListener("dblclick", (e) => zoomBy(2, map, ...at(e)));
    canvas.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[e.key];
      if (step) panBy(...step, map);
      else if (e.key === "+" || e.key === "=") zoomBy(1.5, map);
      else if (e.key === "-") zoomBy(1 / 1.5, map);
      else if (e.key === "0") reset(busy);
      else if (e.key === "Escape") select(null);
      else if (e.key === "Enter" || e.key === " ") pick(map, canvas.clientWidth / 2, canvas.clientHeight / 2, true);
      else return;
      e.preventDefault();
    });
    canvas.addEventListener("focus", redraw);
    canvas.addEventListener("blur", redraw);
    const zoom = document.createElement("div");
    zoom.className = "zoom";
    for (const [text, label, act] of [["+", "Zoom in", () => zoomBy(1.6, map)], ["−", "Zoom out", () => zoomBy(1 / 1.6, map)], ["⤢", "Show everything", () => reset(extent)]]) {
      const b = document.createElement("button");
      b.type = "button"; b.textContent = text; b.title = label; b.setAttribute("aria-label", label);
      b.addEventListener("click", act);
      zoom.append(b);
    }
    canvas.parentElement.append(zoom);
    map.outside = document.createElement("p");
    map.outside.className = "outside soft"; map.outside.hidden = true; map.away = 0;
    const show = document.createElement("button");
    show.type = "button"; show.textContent = "Show all zones";
    show.addEventListener("click", () => reset(extent));
    map.outside.append(document.createTextNode(""), show);
    map.said = document.createElement("p");
    map.said.className = "said"; map.said.setAttribute("role", "status");
    map.figure.append(map.said, map.outside);
  }

  const on = (id, event, act) => { const e = document.getElementById(id); if (e) e.addEventListener(event, () => act(e)); };
  on("basis", "change", (e) => { state.basis = e.value; refresh(); });
  on("colour", "change", (e) => { state.colour = e.value; refresh(); });
  on("lines", "input", (e) => { state.lines = +e.value; $("#lines-shown").textContent = e.value; labels(); redraw(); });
  on("grid", "change", (e) => { state.grid = e.checked; redraw(); });
  on("background", "change", (e) => { state.background = e.checked; $("#attribution").hidden = !e.checked; redraw(); });
  on("clear", "click", () => select(null));
  on("zone-end", "change", fillTables);
  on("zone-filter", "input", fillTables);
  on("find", "change", (e) => {
    const wanted = e.value.trim().toLowerCase();
    const end = $("#find-end").value;
    const zone = data.layers[end].code.findIndex((code) => code.toLowerCase() === wanted);
    e.setCustomValidity(!wanted || zone >= 0 ? "" : `There is no ${end} zone of that code.`);
    e.reportValidity();
    if (zone >= 0) select(end, zone, true); else if (!wanted) select(null);
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  const printing = (on) => { document.documentElement.classList.toggle("printing", on); palette = colours(); rescale(); maps.forEach(draw); };
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  matchMedia("print").addEventListener("change", (e) => { if (e.matches) printing(true); });
  if (maps.length > 12) addEventListener("scroll", redraw, { passive: true });
  new ResizeObserver(redraw).observe(document.body);
  refresh();
  maps.forEach(draw);
  document.documentElement.dataset.ready = "true";
})();
