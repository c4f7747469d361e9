/* Moves a map: fingers, mouse, wheel and keys change a view {k, x, y} of a canvas.

   `act` has home(), moved(), pick(x, y, more), near(x, y), leave(), clear() and lasso(points, done). With the tool `draw`
   a drag draws, and with `add` a click adds an area, both as with Shift. */

const STEPS = {
  ArrowLeft: [60, 0],
  ArrowRight: [-60, 0],
  ArrowUp: [0, 60],
  ArrowDown: [0, -60],
};

export function zoomAt(view, factor, px, py, least) {
  const k = Math.min(Math.max(view.k * factor, least), 2000 * least);
  const by = k / view.k;
  view.x = px - by * (px - view.x);
  view.y = py - by * (py - view.y);
  view.k = k;
}

export function mountViewport(canvas, world, act) {
  const fingers = new Map();
  const hand = { drag: null, pinch: null, lasso: null };
  const at = (e) => {
    const r = canvas.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  };
  const zoom = (factor, px = world.width / 2, py = world.height / 2) => {
    zoomAt(world.view, factor, px, py, world.least);
    act.moved();
  };
  const pan = (dx, dy) => {
    world.view.x += dx;
    world.view.y += dy;
    act.moved();
  };
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
    fingers.set(e.pointerId, at(e));
    canvas.setPointerCapture(e.pointerId);
    if (fingers.size === 2) {
      hand.pinch = span();
      hand.drag = null;
    } else {
      hand.drag = { x: e.clientX, y: e.clientY, moved: false };
      hand.lasso = e.shiftKey || world.tool === "draw" ? [at(e)] : null;
    }
  });
  canvas.addEventListener("pointermove", (e) => {
    if (fingers.has(e.pointerId)) fingers.set(e.pointerId, at(e));
    if (hand.pinch && fingers.size === 2) {
      const now = span();
      pan(now.x - hand.pinch.x, now.y - hand.pinch.y);
      if (hand.pinch.length > 0)
        zoom(now.length / hand.pinch.length, now.x, now.y);
      hand.pinch = now;
    } else if (hand.drag) {
      const dx = e.clientX - hand.drag.x;
      const dy = e.clientY - hand.drag.y;
      if (!hand.drag.moved && Math.hypot(dx, dy) < 4) return;
      hand.drag.moved = true;
      if (hand.lasso) {
        hand.lasso.push(at(e));
        act.lasso(hand.lasso, false);
        return;
      }
      pan(dx, dy);
      hand.drag.x = e.clientX;
      hand.drag.y = e.clientY;
    } else if (!hand.pinch) act.near(...at(e));
  });
  const up = (e, chosen) => {
    fingers.delete(e.pointerId);
    if (chosen && hand.drag && !hand.pinch) {
      if (hand.lasso && hand.drag.moved) act.lasso(hand.lasso, true);
      else if (!hand.drag.moved)
        act.pick(...at(e), e.shiftKey || world.tool === "add");
    }
    hand.drag = null;
    hand.lasso = null;
    if (!fingers.size) hand.pinch = null;
    if (e.pointerType === "touch") act.leave();
  };
  canvas.addEventListener("pointerup", (e) => up(e, true));
  canvas.addEventListener("pointercancel", (e) => up(e, false));
  canvas.addEventListener("pointerleave", () => act.leave());
  canvas.addEventListener(
    "wheel",
    (e) => {
      /* The wheel scrolls the page, unless the map has been chosen by a click or a modifier is held. */
      if (!e.ctrlKey && !e.metaKey && document.activeElement !== canvas) return;
      e.preventDefault();
      zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0022)), ...at(e));
    },
    { passive: false },
  );
  canvas.addEventListener("dblclick", (e) => zoom(2, ...at(e)));
  canvas.addEventListener("keydown", (e) => {
    if (STEPS[e.key]) pan(...STEPS[e.key]);
    else if (e.key === "+" || e.key === "=") zoom(1.5);
    else if (e.key === "-") zoom(1 / 1.5);
    else if (e.key === "0") act.home();
    else if (e.key === "Escape") act.clear();
    else if (e.key === "Enter" || e.key === " ")
      act.pick(
        world.width / 2,
        world.height / 2,
        e.shiftKey || world.tool === "add",
      );
    else return;
    e.preventDefault();
  });
  return { zoom };
}
