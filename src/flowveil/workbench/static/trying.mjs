/* Step 4: move a slider, see a preview at once and the full run behind it. */

import { $$, $, deciding, figuresInto, inWords, same, share } from "./dom.mjs";
import { cancel, desk, isAsking, isOver, jobsOf, lastDone, post, resultOf, start, tryOut, watch } from "./desk.mjs";
import { chosen } from "./choices.mjs";
import { beginWith, offer } from "./offering.mjs";
import { mount } from "./map.mjs";

/* Hexagons from side to side, by resolution. */
const WIDTHS = { 4: "45 km", 5: "17 km", 6: "6.5 km", 7: "2.4 km", 8: "920 m", 9: "350 m", 10: "130 m", 11: "50 m", 12: "19 m" };
const size = (resolution) => `hexagons of about ${WIDTHS[resolution]} (resolution ${resolution})`;
/* Milliseconds without a change after which the full run begins. */
const REST = 700;

export function mountTrying(isHere) {
  let map = null, shown = "", mine = false, rest = 0, moving = 0;

  async function changed() {
    mine = true;
    clearTimeout(rest);
    for (const job of jobsOf("run")) if (!isOver(job)) cancel(job).catch(() => {});
    try {
      await tryOut(chosen());
      clearTimeout(rest);
      rest = setTimeout(full, REST);
    } catch { /* the page has said why */ }
  }
  const full = () => { rest = 0; if (isHere() && !jobsOf("run").some((job) => same(deciding(job.asked), deciding(desk.state.choices)) && (job.state === "done" || !isOver(job)))) start("run").catch(() => {}); };

  const form = $("#choices");
  form.addEventListener("submit", (e) => e.preventDefault());
  form.addEventListener("input", (e) => {
    delete e.target.dataset.unset;
    sayKnobs();
    if (e.target.classList.contains("split") || !(e.target.dataset.choice || e.target.dataset.area)) return;
    /* Words are taken when they are finished, sliders while they move. */
    if (e.target.type === "range") { clearTimeout(moving); moving = setTimeout(changed, 60); }
  });
  form.addEventListener("change", (e) => {
    if (e.target.id === "method") beginWith($("#method").value);
    offer();
    if (e.target.type !== "range" && (e.target.dataset.choice || e.target.dataset.area || e.target.dataset.option)) changed();
  });
  $("#pin").addEventListener("click", () => { const run = fitting("run"); if (run) post("/api/pins", { id: run.id }).catch(() => {}); });

  function sayKnobs() {
    $("#k-said").textContent = $("#k").value;
    $("#limit-said").textContent = share(+$("#limit").value);
    $("#resolution-said").textContent = size($("#resolution").dataset.unset ? 10 : +$("#resolution").value);
    offer();
  }
  document.addEventListener("choices", sayKnobs);

  const fitting = (kind) => lastDone(kind, (job) => same(deciding(job.asked), deciding(desk.state.choices)));

  /* Coming here with trips and no try yet: begin. */
  function begin() {
    /* While the page asks for something its fields may be old; it looks again once it is answered. */
    if (!isHere() || isAsking() || !desk.state?.files.trips) return;
    if (!fitting("run") && !fitting("preview") && !jobsOf("preview").some((job) => !isOver(job)) && !mine) changed();
  }
  addEventListener("hashchange", () => { mine = false; begin(); });

  watch(async (state) => {
    offer();
    if (!state.files.trips) { shown = ""; mine = false; $("#figures").replaceChildren(); $("#swipes").hidden = true; }
    begin();
    const run = fitting("run"), preview = fitting("preview"), best = run ?? preview;
    $("#pin").disabled = !run;
    say(run, preview);
    const last = best ?? lastDone("preview");
    if (!last || last.id === shown || !isHere()) return;
    shown = last.id;
    const found = await resultOf(last);
    if (found && shown === last.id) show(found);
  });

  function say(run, preview) {
    const failed = [...jobsOf("run"), ...jobsOf("preview")].find((job) => job.state === "failed" && same(deciding(job.asked), deciding(desk.state.choices)));
    const at = $("#which");
    at.classList.remove("notice");
    if (run) at.textContent = `Full run: what would be published (${run.seconds.toFixed(1)} s).`;
    else if (failed) { at.textContent = inWords(failed.error); at.classList.add("notice"); }
    else if (preview) at.textContent = !rest && jobsOf("run").filter((job) => same(deciding(job.asked), deciding(desk.state.choices))).at(-1)?.state === "cancelled" ? "Preview. The full run was cancelled." : "Preview. The full run follows and is usually finer.";
    else at.textContent = jobsOf("preview").some((job) => !isOver(job)) ? "Computing a preview …" : "";
    $("#figures").classList.toggle("stale", !run && !preview);
    const asked = (run ?? preview)?.asked;
    at.dataset.of = asked ? `${asked.method ?? "twincut"} ${asked.k ?? ""}` : "";
  }

  function show(found) {
    figuresInto($("#figures"), found.figures);
    const drawn = found.map.frame !== null;
    $("#swipes").hidden = !drawn;
    $("#no-map").hidden = drawn;
    if (!drawn) return;
    if (map) map.update(found.map); else map = mount($("#swipes"), found.map);
    document.documentElement.dataset.drawn = shown;
  }

  /* The divider: dragged, or moved by the keys of its slider. */
  for (const swipe of $$(".swipe")) {
    const stack = $(".stack", swipe), slider = $(".split", swipe), handle = $(".divider", swipe);
    const put = (percent) => { const at = Math.max(0, Math.min(100, percent)); stack.style.setProperty("--split", `${at}%`); slider.value = at; };
    slider.addEventListener("input", () => put(+slider.value));
    handle.addEventListener("pointerdown", (e) => { handle.setPointerCapture(e.pointerId); e.preventDefault(); });
    handle.addEventListener("pointermove", (e) => { if (handle.hasPointerCapture(e.pointerId)) { const box = stack.getBoundingClientRect(); put((100 * (e.clientX - box.left)) / box.width); } });
  }
}
