"use strict";
/* A table that is wider than its place says so; one that fits does not. Without this script the hint stays. */
for (const place of document.querySelectorAll(".sideways")) {
  const hint = place.previousElementSibling;
  new ResizeObserver(() => { hint.hidden = place.scrollWidth <= place.clientWidth; }).observe(place);
}
