/* Columns of numbers and outlines as the page holds them: bytes in base64. */

const TYPES = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f8: Float64Array,
};

export function bytesOf(text) {
  const native = /** @type {any} */ (Uint8Array);
  if (native.fromBase64) return native.fromBase64(text);
  const plain = atob(text);
  const bytes = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i++) bytes[i] = plain.charCodeAt(i);
  return bytes;
}

export const columnOf = ({ type, bytes }) =>
  new TYPES[type](bytesOf(bytes).buffer);

/* Returns a function that reads one shape: its rings or lines as flat lists of x, y, and its box. Shapes are read when
   they are first needed, because most zones of a page are never outlined. */
export function shapesOf(packed) {
  const sizes = columnOf(packed.sizes);
  const bytes = bytesOf(packed.bytes);
  const starts = new Uint32Array(sizes.length + 1);
  const read = new Map();
  for (let i = 0; i < sizes.length; i++) starts[i + 1] = starts[i] + sizes[i];
  let at = 0;
  /* Zigzag varints: seven bits a byte, the lowest bit is the sign. */
  const next = () => {
    let value = 0;
    let shift = 1;
    let byte;
    do {
      byte = bytes[at++];
      value += (byte & 127) * shift;
      shift *= 128;
    } while (byte > 127);
    return value % 2 ? -(value + 1) / 2 : value / 2;
  };
  const decode = (i) => {
    at = starts[i];
    const lines = [];
    const box = {
      west: Infinity,
      east: -Infinity,
      north: Infinity,
      south: -Infinity,
    };
    for (let n = next(); n > 0; n--) {
      const line = new Float64Array(2 * next());
      let x = 0;
      let y = 0;
      for (let j = 0; j < line.length; j += 2) {
        x += next();
        y += next();
        line[j] = x;
        line[j + 1] = y;
        box.west = Math.min(box.west, x);
        box.east = Math.max(box.east, x);
        box.north = Math.min(box.north, y);
        box.south = Math.max(box.south, y);
      }
      lines.push(line);
    }
    return { lines, ...box };
  };
  const shape = (i) => {
    if (!sizes[i]) return null;
    if (!read.has(i)) read.set(i, decode(i));
    return read.get(i);
  };
  return { count: sizes.length, shape };
}

/* Whether a shape contains a point, by the even-odd rule. */
export function contains(shape, x, y) {
  if (x < shape.west || x > shape.east || y < shape.north || y > shape.south)
    return false;
  let hit = false;
  for (const xy of shape.lines) {
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
}
