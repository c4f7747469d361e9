/* Shapes in units of the frame: rings of differences, tests of containment, and extents. */

export const decode = (rings) => {
  const points = [];
  let west = Infinity;
  let east = -Infinity;
  let north = Infinity;
  let south = -Infinity;
  for (const ring of rings) {
    let x = 0;
    let y = 0;
    const xy = [];
    for (let i = 0; i < ring.length; i += 2) {
      x += ring[i];
      y += ring[i + 1];
      xy.push(x, y);
      if (x < west) west = x;
      if (x > east) east = x;
      if (y < north) north = y;
      if (y > south) south = y;
    }
    points.push(xy);
  }
  return { points, west, east, north, south, made: null };
};

/* Made when it is first drawn. */
export const pathOf = (shape) =>
  (shape.made ??= (() => {
    const path = new Path2D();
    for (const xy of shape.points) {
      path.moveTo(xy[0], xy[1]);
      for (let i = 2; i < xy.length; i += 2) path.lineTo(xy[i], xy[i + 1]);
      path.closePath();
    }
    return path;
  })());

export const inside = (shape, x, y) => {
  if (x < shape.west || x > shape.east || y < shape.north || y > shape.south)
    return false;
  let hit = false;
  for (const xy of shape.points) {
    for (let i = 0, j = xy.length - 2; i < xy.length; j = i, i += 2) {
      if (
        xy[i + 1] > y !== xy[j + 1] > y &&
        x <
          ((xy[j] - xy[i]) * (y - xy[i + 1])) / (xy[j + 1] - xy[i + 1]) + xy[i]
      )
        hit = !hit;
    }
  }
  return hit;
};

/* Latitude and longitude of a point in units of the frame. */
export const degreesOf = (frame, px, py) => {
  const x = frame.west + px * frame.perUnit;
  const y = frame.north + py * frame.perUnit;
  const lon = ((((x * 360 - 180 + 540) % 360) + 360) % 360) - 180;
  return [(Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180) / Math.PI, lon];
};

const sized = (box) => ({
  ...box,
  width: Math.max(box.east - box.west, 1),
  height: Math.max(box.south - box.north, 1),
});

/* The box around areas: {west, east, north, south, volume}. */
export const extentOf = (areas) => {
  const box = {
    west: Infinity,
    east: -Infinity,
    north: Infinity,
    south: -Infinity,
  };
  for (const a of areas) {
    box.west = Math.min(box.west, a.west);
    box.east = Math.max(box.east, a.east);
    box.north = Math.min(box.north, a.north);
    box.south = Math.max(box.south, a.south);
  }
  return areas.length
    ? sized(box)
    : sized({ west: 0, east: 1, north: 0, south: 1 });
};
/* The first view holds the central 95 % of the volume: at each of the four sides at most 1.25 % lies outside. */
const OUTSIDE = 0.0125;
const STRIPS = 500;
export const centralOf = (areas) => {
  const extent = extentOf(areas);
  const box = { ...extent };
  const total = areas.reduce((sum, a) => sum + Math.max(a.volume, 0), 0);
  if (!(total > 0)) return extent;
  /* From outside inwards; only the areas of the strip in which the limit is passed are put in order. */
  const edge = (side, sign, span) => {
    const limit = total * OUTSIDE;
    const strips = new Float64Array(STRIPS);
    const stripOf = (a) =>
      Math.min(
        STRIPS - 1,
        Math.floor((sign * (extent[side] - a[side]) * STRIPS) / span),
      );
    for (const a of areas) strips[stripOf(a)] += Math.max(a.volume, 0);
    let strip = 0;
    let beyond = 0;
    while (strip < STRIPS - 1 && beyond + strips[strip] <= limit)
      beyond += strips[strip++];
    const here = areas
      .filter((a) => stripOf(a) === strip)
      .sort((a, b) => sign * (b[side] - a[side]));
    return (here.find((a) => (beyond += Math.max(a.volume, 0)) > limit) ??
      here.at(-1) ??
      extent)[side];
  };
  box.east = edge("east", 1, extent.width);
  box.west = edge("west", -1, extent.width);
  box.south = edge("south", 1, extent.height);
  box.north = edge("north", -1, extent.height);
  const central = sized(box);
  /* A view that hides zones must gain room. */
  return central.width * central.height < 0.8 * extent.width * extent.height
    ? central
    : extent;
};
