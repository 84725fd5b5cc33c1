// Keys of the inbox. Nothing is decided right after the list has moved: a click was then meant for
// what stood there before.
"use strict";

const STILL = 500;

const items = () => [...document.querySelectorAll(".questions > li")];
const places = () => items().map(({ id, offsetTop, offsetHeight }) => [id, offsetTop, offsetHeight].join()).join("\n");
const keys = document.querySelector(".keys");
let before = places();
let moved = performance.now();

const isMoving = () => performance.now() - moved < STILL;

function mark() {
  const list = document.querySelector(".questions");
  if (!list) return;
  list.classList.add("moving");
  setTimeout(() => isMoving() || list.classList.remove("moving"), STILL + 10);
}

document.addEventListener("changed", () => {
  countSelected();
  const now = places();
  if (now === before) return;
  [before, moved] = [now, performance.now()];
  mark();
});
// A field that grows, or a window that changes its size, moves the list too, by the reader's own hand.
addEventListener("resize", () => { before = places(); });

// What the button of the selected calls would do.
function countSelected() {
  const button = document.querySelector(".bulk button");
  const count = document.querySelectorAll("input[name=question]:checked").length;
  if (button) button.textContent = `Refuse ${count} selected`;
}
document.addEventListener("change", countSelected);

document.addEventListener("submit", (event) => {
  if (!event.target.dataset.decide || !isMoving()) return;
  event.preventDefault();
  const status = keys.querySelector("[role=status]");
  status.textContent = " The list has just changed; nothing was decided.";
  setTimeout(() => { status.textContent = ""; }, 4000);
}, true);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), textarea, select")) return;
  const all = items();
  const here = all.indexOf(document.activeElement?.closest(".questions > li"));
  const form = (decision) => all[here]?.querySelector(`form[data-decide="${decision}"]`);
  const act = {
    j: () => all[Math.min(here + 1, all.length - 1)]?.focus(),
    k: () => all[Math.max(here - 1, 0)]?.focus(),
    a: () => form("approve")?.requestSubmit() ?? form("answer")?.elements.text.focus(),
    r: () => form("refuse")?.elements.reason.focus(),
    w: () => { const why = all[here]?.querySelector(".why"); if (why) why.open = !why.open; },
    x: () => all[here]?.querySelector("input[name=question]")?.click(),
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

keys.hidden = false;
countSelected();
mark();
