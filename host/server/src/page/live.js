// Keeps a page current, and a long list of events short in the document. What a page shows is always
// HTML of the server: it is read as a document, which runs nothing, and its elements take the place of
// those that are here. Without this module the links of the page do the same.
"use strict";

const INTERVAL = 2000;

// The page at an address; null if it is the one that has this tag.
function read(address, known) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", address);
    request.responseType = "document";
    if (known) request.setRequestHeader("If-None-Match", known);
    request.onload = () => {
      if (request.status === 304) resolve(null);
      else if (request.status === 200 && request.response) {
        const page = request.response;
        page.tag = request.getResponseHeader("ETag");
        resolve(page);
      } else reject(new Error(String(request.status)));
    };
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

let tag = null;

async function poll() {
  const parts = document.querySelectorAll("[data-live]");
  if (!parts.length) return;
  try {
    if (document.visibilityState === "visible" && !String(getSelection())) {
      const page = await read(location.href, tag);
      if (page) {
        const there = page.querySelectorAll("[data-live]");
        // A run that has ended has nothing that changes.
        if (!there.length && page.querySelector("main")) return location.reload();
        parts.forEach((live, place) => refresh(live, there[place] ?? live));
        await refreshEvents(page);
        tag = page.tag;
      }
    }
  } catch {
    // The server is away or the session over; the next look, or the next click, shows it.
  }
  setTimeout(poll, INTERVAL);
}

// The events of a run: a list for each page of them. Only the lists near the window have their
// events in the document; another is empty and as high as it was, or probably is.
const events = document.querySelector("section.events");
const ROW = 35;
// Whoever scrolls past a list faster than this needs nothing of it.
const PASSED = 80;
const near = new Set();

const lists = () => [...events.querySelectorAll("ol.rows")];
const isHere = (list) => list.dataset.state === "here";

function addressOf(list) {
  const address = new URL(events.dataset.address, location.href);
  address.searchParams.set("from", list.dataset.from);
  address.searchParams.set("part", "events");
  return address.href;
}

function show(list, page) {
  const there = page.querySelector("ol.rows");
  if (!there) return;
  update(list, there);
  list.style.blockSize = "";
  list.ariaLabel = there.ariaLabel;
  list.ariaHidden = null;
  list.dataset.state = "here";
}

async function load(list) {
  if (list.dataset.state) return;
  list.dataset.state = "busy";
  try {
    show(list, await read(addressOf(list)));
  } catch {
    delete list.dataset.state;
  }
}

function drop(list) {
  if (!isHere(list) || isUsed(list) || list.contains(document.activeElement) || list.querySelector(":target")) return;
  list.style.blockSize = `${list.offsetHeight}px`;
  list.replaceChildren();
  list.ariaHidden = "true";
  delete list.dataset.state;
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) {
      near.add(target);
      setTimeout(() => near.has(target) && load(target), PASSED);
    } else {
      near.delete(target);
      drop(target);
    }
  }
}, { rootMargin: "1500px" });

// Makes a list for each page of this many events.
function layOut(count) {
  const size = Number(events.dataset.size);
  const known = new Map(lists().map((list) => [Number(list.dataset.from), list]));
  let before = events.querySelector("header");
  for (let from = 0; from < Math.max(count, 1); from += size) {
    let list = known.get(from);
    if (!list) {
      list = document.createElement("ol");
      list.className = "rows";
      list.dataset.from = from;
      list.ariaHidden = "true";
      before.after(list);
    }
    if (!list.dataset.state) {
      if (list.children.length) list.dataset.state = "here";
      else list.style.blockSize = `${ROW * Math.min(size, count - from)}px`;
    }
    seen.observe(list);
    known.delete(from);
    before = list;
  }
  known.forEach((list) => { seen.unobserve(list); list.remove(); });
}

async function refreshEvents(page) {
  const there = page.querySelector("section.events");
  if (!events || !there) return;
  const [head, next] = [events, there].map((section) => section.querySelector("header"));
  if (!head.isEqualNode(next) && !isUsed(head)) head.replaceChildren(...next.childNodes);
  layOut(Number(there.dataset.count));
  const from = there.querySelector("ol.rows").dataset.from;
  await Promise.all(lists().filter(isHere).map(async (list) =>
    show(list, list.dataset.from === from ? page : await read(addressOf(list)))));
}

// A bar of the waterfall leads to its event, whose line may be outside of the document.
document.addEventListener("click", (event) => {
  const id = event.target.dataset?.event;
  if (!id) return;
  const line = document.getElementById(id);
  if (!line) {
    location.href = `${location.pathname}?event=${encodeURIComponent(id.slice(1))}#${id}`;
    return;
  }
  line.querySelector("details").open = true;
  line.scrollIntoView({ block: "center" });
  line.querySelector("summary").focus({ preventScroll: true });
});

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a[data-expand]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const item = link.closest("li");
  try {
    const address = new URL(link.href);
    address.searchParams.set("part", "events");
    const page = await read(address.href);
    const there = page.getElementById(item.id);
    item.replaceChildren(...there.childNodes);
    item.querySelector("summary")?.focus();
  } catch {
    location.href = link.href;
  }
});

if (events) {
  // Their links are for whoever has no script.
  events.querySelectorAll(".more").forEach((link) => link.remove());
  layOut(Number(events.dataset.count));
  // What an address names was in the window before the lists above it were made.
  document.querySelector(":target")?.scrollIntoView();
}
// On a narrow screen the place of the page can be outside of the bar.
document.querySelectorAll(".top [aria-current]").forEach((link) => link.scrollIntoView({ block: "nearest", inline: "nearest" }));
poll();
