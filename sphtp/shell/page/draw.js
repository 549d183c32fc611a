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
  return { pen, width, height };
}

let style = getComputedStyle(document.documentElement);
let found = {};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { found = {}; });
export function ink(name) { return (found[name] ??= style.getPropertyValue(`--${name}`).trim()); }

// The golden angle: neighbours in the order of ids differ the most.
const hues = new Map();
export function setOwners(ids) { hues.clear(); [...ids].sort((a, b) => a - b).forEach((id, n) => hues.set(id, (215 + 137.508 * n) % 360)); }
export function hue(id) { return hues.get(id) ?? 0; }

// From green over amber to red, for 0 to 1.
export function heat(share) {
  const s = Math.max(0, Math.min(1, share));
  return `hsl(${145 - 140 * s} ${58 + 14 * s}% ${dark() ? 55 : 40}%)`;
}
const scheme = matchMedia("(prefers-color-scheme: dark)");
export function dark() { return scheme.matches; }

export const format = {
  rate: (n) => n == null ? "–" : n >= 1e6 ? `${(n / 1e6).toFixed(1)} M` : n >= 1e4 ? `${(n / 1e3).toFixed(1)} k` : n >= 100 ? n.toFixed(0) : n.toFixed(1),
  bytes: (n) => n == null ? "–" : n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB/s` : n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB/s` : `${n.toFixed(0)} B/s`,
  time: (s) => s == null ? "–" : s >= 1 ? `${s.toFixed(2)} s` : s >= 1e-3 ? `${(1e3 * s).toFixed(2)} ms` : `${(1e6 * s).toFixed(0)} µs`,
  share: (s) => s == null ? "–" : `${(100 * s).toFixed(s < 0.1 ? 1 : 0)} %`,
};
