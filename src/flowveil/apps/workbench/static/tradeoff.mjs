/* Step 5: the frontier of metres and suppressed share, and a comparison of candidates. */

import { $, draw, figuresInto, fill, make, metres, pageWords, same, share } from "./dom.mjs";
import { isOver, jobsOf, lastDone, onState, post, resultOf, session, start } from "./session.mjs";
import { mount } from "./map.mjs";
import { noFrontier } from "./availability.mjs";

/* Round numbers from 0 to the first that is at least the largest value. */
function ticks(most) {
  const rough = most / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((n) => n * power >= rough * 0.999);
  return Array.from({ length: Math.ceil((most / step) * 0.999) + 1 }, (_, i) => i * step);
}

export function mountTradeoff(isHere, go) {
  let map = null, shown = "", point = null, pointJob = "", drawnCandidates = "", candidates = null, pinned = "";

  $("#follow").addEventListener("click", () => start("frontier").catch(() => {}));
  $("#pin-point").addEventListener("click", () => post("/api/pins", { id: pointJob }).catch(() => {}));

  async function update(state) {
    if (!isHere()) return;
    const job = jobsOf("frontier").at(-1), done = lastDone("frontier");
    const none = noFrontier(state.choices);
    $("#no-frontier").hidden = !none;
    $("#no-frontier").textContent = none;
    $("#follow").disabled = !state.files.trips || Boolean(none) || Boolean(job && !isOver(job));
    if (job?.state === "failed" && shown !== job.id) { shown = job.id; fill($("#frontier"), make("p", pageWords(job.error), "notice")); }
    if (!job) { shown = ""; fill($("#frontier")); fill($("#point-figures")); $("#point-map").hidden = true; $("#point-state").textContent = ""; }
    if (done && done === job && done.id !== shown) { shown = done.id; const found = await resultOf(done); if (found) chart(found.points, done.request); }
    const run = point && jobsOf("run").filter((j) => same(j.request, point)).at(-1);
    if (run) {
      $("#point-state").textContent = run.state === "failed" ? pageWords(run.error) : run.state === "done" ? `At most ${share(point.max_suppressed)} suppressed: full run.` : "Computing this point …";
      $("#pin-point").disabled = run.state !== "done";
      if (run.state === "done" && run.id !== pointJob) { pointJob = run.id; const found = await resultOf(run); if (found) showPoint(found); }
    }
    showPins(state);
  }
  onState(update);
  addEventListener("hashchange", () => {
    if (!session.state || !isHere()) return;
    update(session.state);
    if (!jobsOf("frontier").length && session.state.files.trips && !noFrontier(session.state.choices)) start("frontier").catch(() => {});
  });

  function choose(at, choices) {
    /* Rounded up, so that the point itself is within the limit. */
    point = { ...choices, method: choices.method === "paircut" ? "paircut" : "twincut", max_suppressed: Math.min(1, Math.ceil(at[0] * 1e4) / 1e4), options: { objective: "metres" } };
    delete point.common_zones;
    pointJob = "";
    start("run", point).catch(() => {});
  }

  function chart(points, choices) {
    const W = 860, H = 352, left = 66, bottom = 44, right = 22, top = 34;
    if (!points.length) { fill($("#frontier"), make("p", "No release of these trips satisfies this k.", "notice")); return; }
    const ofX = ticks(Math.max(...points.map((p) => p[0]), 0.01)), ofY = ticks(Math.max(...points.map((p) => p[1]), 1));
    const mostX = ofX.at(-1), mostY = ofY.at(-1);
    const x = (v) => left + ((W - left - right) * v) / mostX, y = (v) => H - bottom - ((H - bottom - top) * v) / mostY;
    const svg = draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": "Metres that trip ends move, against the share of trips suppressed" });
    for (const v of ofY) svg.append(draw("line", { class: "axis", x1: left, x2: W - right, y1: y(v), y2: y(v) }), draw("text", { x: left - 14, y: y(v) + 4, "text-anchor": "end" }, metres(v)));
    for (const v of ofX) svg.append(draw("text", { x: x(v), y: H - bottom + 20, "text-anchor": "middle" }, share(v)));
    svg.append(draw("text", { x: W - right, y: H - 4, "text-anchor": "end" }, "share of the trips suppressed"), draw("text", { x: 4, y: 14 }, "mean distance that trip ends move"));
    svg.append(draw("polyline", { class: "curve", points: points.map((p) => `${x(p[0])},${y(p[1])}`).join(" ") }));
    for (const at of points) {
      const dot = draw("circle", { class: "point", cx: x(at[0]), cy: y(at[1]), r: 8, tabindex: 0, role: "button", "aria-label": `${share(at[0])} suppressed, ${metres(at[1])}` });
      dot.append(draw("title", {}, `${share(at[0])} suppressed, ${metres(at[1])}`));
      const act = () => { for (const other of svg.querySelectorAll(".point")) other.classList.remove("now"); dot.classList.add("now"); choose(at, choices); };
      dot.addEventListener("click", act);
      dot.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); act(); } });
      svg.append(dot);
    }
    fill($("#frontier"), svg);
  }

  function showPoint(found) {
    figuresInto($("#point-figures"), found.figures);
    $("#point-map").hidden = found.map.frame === null;
    if (found.map.frame === null) return;
    if (map) map.update(found.map); else map = mount($("#point-map"), found.map);
  }

  async function showPins(state) {
    const key = state.pins.map((pin) => pin.id).join();
    if (key !== pinned) {
      pinned = key;
      fill($("#pins"), ...(state.pins.length ? state.pins.map(card) : [make("p", "None yet.", "soft")]));
      if (!key) { fill($("#candidates")); candidates = null; drawnCandidates = ""; }
      else if (!jobsOf("candidates").some((job) => ["waiting", "running", "done"].includes(job.state) && job.request.pins.join() === key)) start("candidates").catch(() => {});
    }
    const done = lastDone("candidates", (job) => job.request.pins.join() === key);
    if (done && done.id !== drawnCandidates) {
      drawnCandidates = done.id;
      const found = await resultOf(done);
      if (found?.map.frame) drawCandidates(found.map, state.pins);
    }
  }
  const title = (pin) => `${pin.choices.method ?? "recommended"}, k = ${pin.choices.k ?? 10}${pin.choices.max_suppressed === undefined ? "" : `, at most ${share(pin.choices.max_suppressed)} suppressed`}`;
  function card(pin, i) {
    const box = make("div", "", "pin"), list = make("dl"), use = make("button", "Use this one", "primary", { type: "button" }), away = make("button", "Remove", "", { type: "button" });
    for (const f of pin.figures) list.append(make("dt", f.name), make("dd", f.value));
    use.addEventListener("click", async () => { try { await post("/api/choices", pin.choices, "choices"); go("sign"); } catch { /* the page shows why */ } });
    away.addEventListener("click", () => post("/api/pins", { id: pin.id, away: true }).catch(() => {}));
    box.append(make("h4", `${i + 1}: ${title(pin)}`), list, use, " ", away);
    return box;
  }
  function drawCandidates(data, pins) {
    if (candidates) candidates.destroy();
    const maps = make("div", "", "maps"), legend = make("div", "", "legend", { "data-scale": "density" });
    pins.forEach((pin, i) => {
      const figure = make("figure", "", "map", { "data-layer": `origin_${i}` }), caption = make("figcaption"), around = make("div", "", "canvas");
      caption.append(make("strong", `${i + 1}: ${title(pin)}`), make("span", "", "shown soft"));
      around.append(make("canvas", "", "", { tabindex: "0", role: "application", "aria-roledescription": "map", "aria-label": `Candidate ${i + 1}, where trips start` }));
      figure.append(caption, around);
      maps.append(figure);
    });
    fill($("#candidates"), maps, legend);
    candidates = mount($("#candidates"), data);
  }
}
