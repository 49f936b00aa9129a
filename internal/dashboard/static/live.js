// Brings a page up to date: puts what its stream sends in its place, and fetches
// plots anew when there is another version of them.
"use strict";
const path = document.body.dataset.events;
const live = document.getElementById("live");
let source = null;
let version = null;

function say(word) { if (live && live.textContent !== word) { live.textContent = word; live.className = word; } }

// Fills an element, and gives the focus back to the link that had it. What was scrolled or
// opened stays so.
function fill(id, html, key) {
  const at = document.getElementById(id);
  if (!at || key && at.dataset.key === key) return;
  if (key) at.dataset.key = key;
  const focused = at.contains(document.activeElement) ? document.activeElement : null;
  const link = focused && focused.getAttribute("href");
  const label = focused && focused.getAttribute("aria-label");
  const scrolled = [...at.querySelectorAll(".scroll, .notes, pre")].map(e => [e.scrollLeft, e.scrollTop]);
  const opened = [...at.querySelectorAll("details")].map(e => e.open);
  at.innerHTML = html;
  at.querySelectorAll("details").forEach((e, i) => { e.open = opened[i] ?? e.open; });
  at.querySelectorAll(".scroll, .notes, pre").forEach((e, i) => { if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i]; });
  const again = [...at.querySelectorAll("a, [aria-label]")].find(e => link ? e.getAttribute("href") === link : label && e.getAttribute("aria-label") === label);
  if (again) again.focus({ preventScroll: true });
}

// Shows the plots of a version, each when it is there.
function plots(v) {
  const first = version === null;
  version = v;
  if (first) return;
  for (const img of document.querySelectorAll("img[data-plot]")) {
    const source = img.parentElement.querySelector("source");
    const narrow = source && matchMedia(source.media).matches;
    const next = new Image();
    const url = (narrow ? source : img).dataset.plot + "&v=" + encodeURIComponent(v);
    next.onload = () => { if (version !== v) return; if (narrow) source.srcset = url; else { if (source) source.srcset = source.dataset.plot + "&v=" + encodeURIComponent(v); img.src = url; } };
    next.src = url;
  }
}

function listen() {
  if (source || !path) return;
  source = new EventSource(path);
  source.onopen = () => say("live");
  source.onerror = () => {
    say("reconnecting");
    if (source && source.readyState === EventSource.CLOSED) { source = null; setTimeout(listen, 3000); }
  };
  source.onmessage = e => {
    const m = JSON.parse(e.data);
    if (m.plots !== undefined) plots(m.plots); else fill(m.id, m.html || "", m.key);
  };
}

// A page that nobody sees does not listen: a browser has few connections.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { if (source) source.close(); source = null; say("paused"); } else listen();
});
listen();
