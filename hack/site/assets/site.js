"use strict";
(() => {
  const $ = (id) => document.getElementById(id);

  // Light or dark: the system's choice, until another is made.
  $("theme").onclick = () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--back").trim() !== "#fff";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  };

  // The other versions of this page; their beginning, where they do not have it.
  const version = $("version"), page = location.pathname.split("/").pop() || "index.html";
  version.replaceChildren(...(window.versions || [version.dataset.version]).toReversed().map((v) => new Option(v, v, false, v === version.dataset.version)));
  version.onchange = async () => {
    const there = `../${version.value}/${page}`;
    const ok = location.protocol === "file:" || (await fetch(there, {method: "HEAD"})).ok;
    location.href = ok ? there : `../${version.value}/index.html`;
  };

  // The search: all words have to be there; those in headings count more.
  const fold = (s) => s.toLowerCase().normalize("NFKD").replace(/\p{M}/gu, "");
  const parts = (window.parts || []).map((p) => ({...p, head: fold(`${p.h} ${p.p}`), body: fold(p.t)}));
  const find = (query) => {
    const words = fold(query).split(/\s+/).filter(Boolean);
    const score = (p) => words.reduce((sum, w) => {
      const inHead = p.head.includes(w), inBody = p.body.split(w).length - 1;
      return sum === null || !inHead && !inBody ? null : sum + (inHead ? 10 : 0) + Math.min(inBody, 5);
    }, 0);
    return words.length ? parts.map((p) => ({p, s: score(p)})).filter((r) => r.s !== null).sort((a, b) => b.s - a.s).slice(0, 30).map((r) => r.p) : [];
  };
  const excerpt = (p, query) => {
    const word = fold(query).split(/\s+/)[0], at = Math.max(0, p.body.indexOf(word));
    const from = Math.max(0, at - 60), text = p.t.slice(from, at + 160);
    return (from ? "…" : "") + text + (at + 160 < p.t.length ? "…" : "");
  };
  const show = (query) => {
    const results = $("results"), found = find(query);
    results.hidden = !query.trim();
    const title = document.createElement("h2");
    title.textContent = found.length ? `${found.length === 30 ? "The first 30" : found.length} found for “${query}”` : `Nothing found for “${query}”`;
    results.replaceChildren(title, ...found.flatMap((p) => {
      const a = document.createElement("a"), text = document.createElement("p");
      a.href = p.u;
      a.textContent = p.h === p.p ? p.p : `${p.p}: ${p.h}`;
      text.textContent = excerpt(p, query);
      return [a, text];
    }));
  };
  const q = $("q");
  q.oninput = () => show(q.value);
  $("search").onsubmit = (e) => e.preventDefault();
  $("results").onclick = (e) => { if (e.target.closest("a")) $("results").hidden = true; };
  document.onkeydown = (e) => {
    if (e.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) { e.preventDefault(); q.focus(); }
    if (e.key === "Escape") { q.value = ""; show(""); }
  };
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) { q.value = asked; show(asked); }
})();
