// Checks a specification while it is written, numbers its lines, and uploads tables.
"use strict";
const form = document.querySelector("form.editor");
const spec = form.elements.spec;
const found = document.getElementById("mistakes");
const lines = document.getElementById("lines");
let timer = 0;
let asked = null;
let shown = null;

// Numbers the lines; those with a mistake stand out.
function number() {
  const wrong = [...found.querySelectorAll("[data-line]")].map(e => Number(e.dataset.line));
  lines.replaceChildren(...spec.value.split("\n").map((_, i) => {
    const e = document.createElement("span");
    e.textContent = i + 1;
    if (wrong.includes(i + 1)) e.className = "poor";
    return e;
  }));
  lines.scrollTop = spec.scrollTop;
}

// Marks a line, and brings it into sight.
function go(line) {
  const before = spec.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  const end = spec.value.indexOf("\n", before);
  spec.focus();
  spec.setSelectionRange(before, end < 0 ? spec.value.length : end);
  spec.scrollTop = (line - 5) * parseFloat(getComputedStyle(spec).lineHeight);
}

// Shows what is wrong. What has not changed is not said again.
function show(html) {
  if (html === shown) return;
  shown = html;
  found.innerHTML = html;
  for (const e of found.querySelectorAll("[data-line]")) {
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = "Show";
    b.onclick = () => go(Number(e.dataset.line));
    e.append(" ", b);
  }
  number();
}

async function check() {
  if (asked) asked.abort();
  const mine = asked = new AbortController();
  try {
    const answer = await fetch("/submit/check", { method: "POST", body: new URLSearchParams(new FormData(form)), signal: mine.signal });
    const html = await answer.text();
    if (mine !== asked) return;
    show(html);
    if (answer.status === 503) again(); // no leader, for a moment
  } catch (e) {
    if (mine === asked) again(); // the cluster is away
  }
}

function again() { clearTimeout(timer); timer = setTimeout(check, 2000); }

function soon() { clearTimeout(timer); timer = setTimeout(check, 300); }

spec.addEventListener("input", () => { number(); soon(); });
spec.addEventListener("scroll", () => { lines.scrollTop = spec.scrollTop; });
form.elements.data.addEventListener("change", soon);

const upload = document.getElementById("upload");
upload.hidden = false;
upload.querySelector("input").addEventListener("change", async e => {
  const file = e.target.files[0];
  const told = upload.querySelector("[role=status]");
  if (!file) return;
  told.textContent = "Uploading " + file.name + " …";
  const headers = form.elements.namespace?.value ? { "Ulisse-Namespace": form.elements.namespace.value } : {};
  try {
    const answer = await fetch("/v1/data", { method: "PUT", body: file, headers });
    const it = await answer.json();
    if (!answer.ok) throw new Error(it.message);
    form.elements.data.add(new Option(file.name + ", " + it.size + " bytes", it.sha256, true, true));
    told.textContent = file.name + " is uploaded, and chosen.";
    soon();
  } catch (why) {
    told.textContent = "Not uploaded: " + why.message;
  }
});
show(found.innerHTML);
