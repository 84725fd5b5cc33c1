// Keeps a page current, and fetches more events. What a page shows is always HTML of the server: it
// is read as a document, which runs nothing, and its elements take the place of those that are here.
// Without this module the links of the page do the same.
"use strict";

const INTERVAL = 2000;

function read(address) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", address);
    request.responseType = "document";
    request.onload = () =>
      request.status === 200 && request.response ? resolve(request.response) : reject(new Error(String(request.status)));
    request.onerror = () => reject(new Error("no answer"));
    request.send();
  });
}

// Whether a reader is at work in this part, or has written something in it: it stays as it is.
function isUsed(part) {
  const field = document.activeElement?.closest("input, textarea, select, button, summary");
  const isWritten = ({ value, defaultValue, checked, defaultChecked }) => value !== defaultValue || checked !== defaultChecked;
  return (field && part.contains(field)) || part.querySelector("details[open]") ||
    [...part.querySelectorAll("input, textarea")].some(isWritten);
}

// Elements with the same id stay, with what a reader opened in them.
function update(here, there) {
  if (here.isEqualNode(there)) return;
  const known = new Map([...here.children].filter(({ id }) => id).map((child) => [child.id, child]));
  const children = [...there.children];
  if (!children.length || !children.every(({ id }) => id)) {
    here.replaceChildren(...there.childNodes);
    return;
  }
  const next = children.map((child) => {
    const old = known.get(child.id);
    if (!old) return document.adoptNode(child);
    if (!old.isEqualNode(child) && !isUsed(old)) old.replaceChildren(...child.childNodes);
    return old;
  });
  // An element that is moved loses the focus.
  if (next.length === here.children.length && next.every((child, place) => child === here.children[place])) return;
  const focused = document.activeElement;
  here.replaceChildren(...next);
  if (focused?.isConnected) focused.focus({ preventScroll: true });
}

function refresh(live, there) {
  const focus = document.activeElement?.getAttribute("href");
  const inside = live.contains(document.activeElement);
  const [list, next] = [live, there].map((part) => part.querySelector("[data-keyed]"));
  if (list && next) {
    update(list, next);
  } else if (!live.isEqualNode(there) && !isUsed(live)) {
    live.replaceChildren(...there.childNodes);
  }
  live.dispatchEvent(new CustomEvent("changed", { bubbles: true }));
  if (inside && focus && !live.contains(document.activeElement)) {
    [...live.querySelectorAll("a")].find((link) => link.getAttribute("href") === focus)?.focus();
  }
}

async function poll() {
  const parts = document.querySelectorAll("[data-live]");
  if (!parts.length) return;
  try {
    if (document.visibilityState === "visible" && !String(getSelection())) {
      const page = await read(location.href);
      const there = page.querySelectorAll("[data-live]");
      const more = page.querySelector("#rows");
      if (there.length) parts.forEach((live, place) => refresh(live, there[place] ?? live));
      // A run that has ended has nothing that changes.
      else if (page.querySelector("main")) location.reload();
      const rows = document.querySelector("#rows");
      if (rows && more) append(rows, more);
    }
  } catch {
    // The server is away or the session over; the next look, or the next click, shows it.
  }
  setTimeout(poll, INTERVAL);
}

// Events that are here stay as they are, unless they are not open and have changed.
function append(rows, more) {
  let place = null;
  for (const child of [...more.children]) {
    const old = document.getElementById(child.id);
    if (old) {
      if (!old.querySelector("details[open]") && !old.isEqualNode(child)) old.replaceChildren(...child.childNodes);
      place = old;
    } else {
      const made = document.adoptNode(child);
      place ? place.after(made) : rows.prepend(made);
      place = made;
    }
  }
}

async function fetchMore(link) {
  if (link.dataset.busy) return;
  link.dataset.busy = "1";
  try {
    const page = await read(link.href);
    const rows = document.querySelector(link.dataset.append);
    for (const child of [...page.querySelector(link.dataset.append).children]) {
      if (!document.getElementById(child.id)) rows.append(document.adoptNode(child));
    }
    const next = page.querySelector(`a[data-append="${link.dataset.append}"]`);
    if (next) {
      link.href = next.href;
      delete link.dataset.busy;
      seen.unobserve(link);
      seen.observe(link);
    } else link.parentElement.remove();
  } catch {
    delete link.dataset.busy;
  }
}

const seen = new IntersectionObserver((entries) => {
  entries.filter((entry) => entry.isIntersecting).forEach((entry) => fetchMore(entry.target));
}, { rootMargin: "600px" });
document.querySelectorAll("a[data-append]").forEach((link) => seen.observe(link));

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a[data-append], a[data-expand]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (link.dataset.append) return fetchMore(link);
  const item = link.closest("li");
  try {
    const page = await read(link.href);
    const there = page.getElementById(item.id);
    item.replaceChildren(...there.childNodes);
    item.querySelector("summary")?.focus();
  } catch {
    location.href = link.href;
  }
});
poll();
