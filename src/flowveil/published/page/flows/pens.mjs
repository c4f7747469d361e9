/* Two pens with the same strokes: one draws on a canvas, the other writes an SVG. So a picture is the map as shown. */

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const paths = new WeakMap();

/* The path of a shape in units of the frame, made once. */
function pathOf(shape, closed) {
  if (!paths.has(shape)) {
    const path = new Path2D();
    for (const xy of shape.lines) {
      path.moveTo(xy[0], xy[1]);
      for (let i = 2; i < xy.length; i += 2) path.lineTo(xy[i], xy[i + 1]);
      if (closed) path.closePath();
    }
    paths.set(shape, path);
  }
  return paths.get(shape);
}

/* Styles: fill, stroke, width, alpha, dash; of text: size, bold, halo, anchor. */
export function canvasPen(c, density) {
  const flat = () => c.setTransform(density, 0, 0, density, 0, 0);
  const ink = (
    path,
    { fill, stroke, width = 1, alpha = 1, dash = [] },
    k = 1,
    rule = "nonzero",
  ) => {
    c.globalAlpha = alpha;
    if (fill) {
      c.fillStyle = fill;
      c.fill(path, rule);
    }
    if (stroke) {
      c.strokeStyle = stroke;
      c.lineWidth = width / k;
      c.lineJoin = "round";
      c.setLineDash(dash.map((d) => d / k));
      c.stroke(path);
    }
  };
  return {
    rect(x, y, w, h, style) {
      flat();
      const path = new Path2D();
      path.rect(x, y, w, h);
      ink(path, style);
    },
    polygon(points, style) {
      flat();
      const path = new Path2D();
      points.forEach(([x, y], i) =>
        i ? path.lineTo(x, y) : path.moveTo(x, y),
      );
      path.closePath();
      ink(path, style);
    },
    line(points, style) {
      flat();
      const path = new Path2D();
      points.forEach(([x, y], i) =>
        i ? path.lineTo(x, y) : path.moveTo(x, y),
      );
      ink(path, style);
    },
    circle(x, y, r, style) {
      flat();
      const path = new Path2D();
      path.arc(x, y, r, 0, 2 * Math.PI);
      ink(path, style);
    },
    shape(shape, view, style, closed = true) {
      c.setTransform(
        density * view.k,
        0,
        0,
        density * view.k,
        density * view.x,
        density * view.y,
      );
      ink(pathOf(shape, closed), style, view.k, "evenodd");
    },
    text(
      x,
      y,
      words,
      { size = 12, bold = false, fill, halo, anchor = "start", alpha = 1 },
    ) {
      flat();
      c.globalAlpha = alpha;
      c.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
      c.textBaseline = "middle";
      c.textAlign = anchor === "middle" ? "center" : anchor;
      if (halo) {
        c.strokeStyle = halo;
        c.lineWidth = 3;
        c.lineJoin = "round";
        c.setLineDash([]);
        c.strokeText(words, x, y);
      }
      c.fillStyle = fill;
      c.fillText(words, x, y);
    },
    widthOf(words, size = 12, bold = false) {
      c.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
      return c.measureText(words).width;
    },
    image(picture, x, y, w, h) {
      flat();
      c.globalAlpha = 1;
      c.drawImage(picture, x, y, w, h);
    },
    clip(x, y, w, h, act) {
      c.save();
      flat();
      c.beginPath();
      c.rect(x, y, w, h);
      c.clip();
      act();
      c.restore();
    },
  };
}

export function svgPen(width, height, title) {
  const space = "http://www.w3.org/2000/svg";
  const root = document.createElementNS(space, "svg");
  const measure = document.createElement("canvas").getContext("2d");
  let into = root;
  let clips = 0;
  const add = (tag, attributes, words = "") => {
    const e = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes))
      if (value !== undefined && value !== null) e.setAttribute(name, value);
    if (words) e.textContent = words;
    into.append(e);
    return e;
  };
  const short = (v) => +v.toFixed(1);
  const look = ({ fill, stroke, width: wide = 1, alpha, dash = [] }) => ({
    fill: fill || "none",
    stroke,
    "stroke-width": stroke ? short(wide) : undefined,
    "stroke-linejoin": stroke ? "round" : undefined,
    "stroke-dasharray": dash.length ? dash.join(" ") : undefined,
    opacity: alpha === undefined || alpha === 1 ? undefined : +alpha.toFixed(2),
  });
  for (const [name, value] of [
    ["xmlns", space],
    ["viewBox", `0 0 ${width} ${height}`],
    ["width", width],
    ["height", height],
    ["role", "img"],
    ["aria-label", title],
    ["font-family", FONT],
  ])
    root.setAttribute(name, value);
  add("title", {}, title);
  return {
    rect: (x, y, w, h, style) =>
      add("rect", {
        x: short(x),
        y: short(y),
        width: short(w),
        height: short(h),
        ...look(style),
      }),
    polygon: (points, style) =>
      add("polygon", {
        points: points.map((p) => p.map(short).join()).join(" "),
        ...look(style),
      }),
    line: (points, style) =>
      add("polyline", {
        points: points.map((p) => p.map(short).join()).join(" "),
        ...look(style),
      }),
    circle: (x, y, r, style) =>
      add("circle", {
        cx: short(x),
        cy: short(y),
        r: short(r),
        ...look(style),
      }),
    shape(shape, view, style, closed = true) {
      let d = "";
      for (const xy of shape.lines) {
        for (let i = 0; i < xy.length; i += 2)
          d += `${i ? "L" : "M"}${short(view.x + view.k * xy[i])} ${short(view.y + view.k * xy[i + 1])}`;
        if (closed) d += "Z";
      }
      add("path", { d, "fill-rule": "evenodd", ...look(style) });
    },
    text(
      x,
      y,
      words,
      { size = 12, bold = false, fill, halo, anchor = "start" },
    ) {
      add(
        "text",
        {
          x: short(x),
          y: short(y),
          "font-size": size,
          "font-weight": bold ? 600 : undefined,
          fill,
          "text-anchor": anchor,
          "dominant-baseline": "central",
          stroke: halo,
          "stroke-width": halo ? 3 : undefined,
          "stroke-linejoin": halo ? "round" : undefined,
          "paint-order": halo ? "stroke" : undefined,
        },
        words,
      );
    },
    widthOf(words, size = 12, bold = false) {
      measure.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
      return measure.measureText(words).width;
    },
    image() {},
    clip(x, y, w, h, act) {
      const name = `clip-${++clips}`;
      const before = into;
      into = add("clipPath", { id: name });
      add("rect", { x, y, width: w, height: h });
      into = before;
      into = add("g", { "clip-path": `url(#${name})` });
      act();
      into = before;
    },
    markup: () => new XMLSerializer().serializeToString(root),
  };
}
