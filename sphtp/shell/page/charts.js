// Lines over the last five minutes. What was not seen is a gap.

import { fit, ink, format } from "./draw.js";

const KEPT = 300;
const KINDS = [
  ["Steps per second", "steps_per_s", format.rate],
  ["Loss", "loss", format.share],
  ["Round trip, median", "rtt", format.time],
  ["Throughput", "bytes_per_s", format.bytes],
];

export class Charts {
  constructor(place) {
    this.points = [];
    this.charts = KINDS.map(([title, key, write]) => {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption");
      const canvas = document.createElement("canvas"), value = document.createElement("b"), name = document.createElement("span");
      name.textContent = title; caption.append(name, value);
      canvas.setAttribute("role", "img");
      figure.append(caption, canvas); place.append(figure);
      return { title, key, write, canvas, value };
    });
  }

  add(totals) {
    this.points.push({ at: performance.now(), ...totals });
    if (this.points.length > KEPT) this.points.shift();
    this.draw();
  }

  draw() {
    const end = performance.now(), span = 1000 * Math.max(30, Math.min(KEPT, (end - (this.points[0]?.at ?? end)) / 1000));
    for (const { title, key, write, canvas, value } of this.charts) {
      const { pen, width, height } = fit(canvas);
      const known = this.points.filter((point) => point[key] != null);
      const most = known.reduce((top, point) => Math.max(top, point[key]), 0);
      value.textContent = write(this.points.at(-1)?.[key]);
      canvas.setAttribute("aria-label", `${title}: now ${value.textContent}, at most ${write(most)} in the last minutes`);
      pen.strokeStyle = ink("line"); pen.lineWidth = 1; pen.beginPath(); pen.moveTo(0, height - 1); pen.lineTo(width, height - 1); pen.stroke();
      pen.fillStyle = ink("soft"); pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "top"; pen.fillText(write(most), 0, 2);
      pen.textAlign = "right"; pen.fillText(`${Math.round(span / 1000)} s`, width, 2); pen.textAlign = "left";
      pen.strokeStyle = ink("accent"); pen.lineWidth = 2; pen.lineJoin = "round"; pen.beginPath();
      let last = -Infinity;
      for (const point of this.points) {
        if (point[key] == null) { last = -Infinity; continue; }
        const x = (width - 3) * (1 - (end - point.at) / span), y = height - 3 - (height - 24) * point[key] / (most || 1);
        if (point.at - last > 6000) pen.moveTo(x, y); else pen.lineTo(x, y);
        last = point.at;
      }
      pen.stroke();
      const newest = this.points.at(-1);
      if (newest?.[key] != null) { pen.fillStyle = ink("accent"); pen.beginPath(); pen.arc(width - 3, height - 3 - (height - 24) * newest[key] / (most || 1), 3, 0, 7); pen.fill(); }
    }
  }
}
