// What all drawings share: a canvas as sharp as its screen, colours of the style, and of owners.

export const still = matchMedia("(prefers-reduced-motion: reduce)");

export function fit(canvas) {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height, ratio };
}

let style = getComputedStyle(document.documentElement);
let found = {};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { found = {}; });
export function ink(name) { return (found[name] ??= style.getPropertyValue(`--${name}`).trim()); }

// Each owner keeps its colour for as long as it is there. The first eight are as far apart as eight
// can be, also for those who see fewer colours; from then on the golden angle goes round the circle.
const FIRST = [255, 55, 150, 345, 205, 95, 300, 25];
const owners = new Map();
export function setOwners(ids) {
  const there = new Set(ids);
  for (const id of owners.keys()) if (!there.has(id)) owners.delete(id);
  const taken = new Set(owners.values());
  let place = 0;
  for (const id of ids) if (!owners.has(id)) { while (taken.has(place)) place++; taken.add(place); owners.set(id, place); }
}
export function hue(id) { const place = owners.get(id) ?? 0; return FIRST[place] ?? (255 + 137.508 * place) % 360; }
export function colour(id, light = dark() ? 0.72 : 0.6, chroma = 0.16) { return `oklch(${light} ${chroma} ${hue(id)})`; }

// From a quiet grey blue over amber to red, for 0 to 1: what is well does not ask for attention, and
// nothing hangs on telling red from green.
export function heat(share) {
  const s = Math.max(0, Math.min(1, share));
  return `oklch(${dark() ? 0.58 + 0.14 * s : 0.68 - 0.14 * s} ${0.05 + 0.15 * Math.sqrt(s)} ${s < 0.15 ? 240 : 85 - 58 * s})`;
}
const scheme = matchMedia("(prefers-color-scheme: dark)");
export function dark() { return scheme.matches; }

export const format = {
  rate: (n) => n == null ? "–" : n >= 1e6 ? `${(n / 1e6).toFixed(1)} M` : n >= 1e4 ? `${(n / 1e3).toFixed(1)} k` : n >= 100 ? n.toFixed(0) : n.toFixed(1),
  bytes: (n) => n == null ? "–" : n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB/s` : n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB/s` : `${n.toFixed(0)} B/s`,
  time: (s) => s == null ? "–" : s >= 1 ? `${s.toFixed(2)} s` : s >= 1e-3 ? `${(1e3 * s).toFixed(2)} ms` : `${(1e6 * s).toFixed(0)} µs`,
  share: (s) => s == null ? "–" : `${(100 * s).toFixed(s < 0.1 ? 1 : 0)} %`,
};
