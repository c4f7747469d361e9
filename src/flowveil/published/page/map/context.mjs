/* What is around the zones, for orientation: coasts and borders below them, names of towns above. */

/* Lines come as the first point and differences; the path is made once. */
const lineParts = new WeakMap();
function pathOfLines(lines) {
  if (!lineParts.has(lines)) {
    const path = new Path2D();
    for (const line of lines) {
      let x = 0;
      let y = 0;
      for (let i = 0; i < line.length; i += 2) {
        x += line[i];
        y += line[i + 1];
        if (i) path.lineTo(x, y);
        else path.moveTo(x, y);
      }
    }
    lineParts.set(lines, path);
  }
  return lineParts.get(lines);
}

export function drawLines(world, map, view, pen) {
  const { context } = world.data;
  const c = map.context;
  if (!context) return;
  pen.toUnits();
  c.globalAlpha = 0.9;
  c.strokeStyle = world.palette.outline;
  c.lineWidth = 1.2 / view.k;
  c.lineJoin = "round";
  c.stroke(pathOfLines(context.lines));
  pen.toPixels();
}

/* Which names fit: the largest towns first, none on another, none at the edge. */
export function placedTowns(towns, view, w, h, widthOf) {
  const taken = [];
  const placed = [];
  for (const [name, ux, uy] of towns) {
    const x = view.x + view.k * ux;
    const y = view.y + view.k * uy;
    const wide = widthOf(name) + 8;
    const box = { west: x - 4, east: x + wide, north: y - 8, south: y + 8 };
    if (box.west < 0 || box.east > w || box.north < 0 || box.south > h)
      continue;
    if (
      taken.some(
        (t) =>
          t.west < box.east &&
          t.east > box.west &&
          t.north < box.south &&
          t.south > box.north,
      )
    )
      continue;
    taken.push(box);
    placed.push({ name, x, y });
    if (placed.length >= 14) break;
  }
  return placed;
}

export function drawTowns(world, map, view, pen) {
  const { context } = world.data;
  const c = map.context;
  const { clientWidth: w, clientHeight: h } = map.canvas;
  /* Small maps have no room for names. */
  if (!context || w < 260) return;
  pen.toPixels();
  c.globalAlpha = 1;
  c.font = "11px system-ui, sans-serif";
  c.textBaseline = "middle";
  c.lineJoin = "round";
  for (const { name, x, y } of placedTowns(
    context.towns,
    view,
    w,
    h,
    (text) => c.measureText(text).width,
  )) {
    c.fillStyle = world.palette.ink;
    c.strokeStyle = world.palette.map;
    c.beginPath();
    c.arc(x, y, 2, 0, 7);
    c.lineWidth = 2;
    c.stroke();
    c.fill();
    c.lineWidth = 3;
    c.strokeText(name, x + 5, y);
    c.fillText(name, x + 5, y);
  }
  c.textBaseline = "alphabetic";
}
