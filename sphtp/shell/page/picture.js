// The simulation as it moves. Peers publish a few states a second; what is drawn is between the
// last two, a little late, so that spheres move and do not jump. Ready-made pictures of spheres,
// one for each owner, are copied from the farthest to the nearest.

import { fit, hue, colour, ink, still, dark } from "./draw.js";

const SIDE = 48;

export class Picture {
  constructor(canvas, text) {
    this.canvas = canvas; this.text = text;
    this.owners = new Map(); this.balls = new Map();
    this.turn = -0.5; this.tilt = 0.35; this.box = null; this.radius = null;
    this.frames = []; this.asked = false;
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
      if (step) { this.rotate(...step); event.preventDefault(); }
    });
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); this.from = [event.clientX, event.clientY]; });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.from) return;
      this.rotate((event.clientX - this.from[0]) / 150, (event.clientY - this.from[1]) / 150);
      this.from = [event.clientX, event.clientY];
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { this.from = null; });
  }

  rotate(turn, tilt) { this.turn += turn; this.tilt = Math.max(-1.5, Math.min(1.5, this.tilt + tilt)); this.ask(); }

  show(owner, step, ids, places) {
    const now = performance.now(), before = this.owners.get(owner);
    // A sphere that has come from another owner begins where it is.
    const index = new Map();
    if (before) for (let n = 0; n < before.ids.length; n++) index.set(before.ids[n], n);
    const start = new Float32Array(places);
    if (before) for (let n = 0; n < ids.length; n++) {
      const m = index.get(ids[n]);
      if (m === undefined) continue;
      for (let axis = 0; axis < 3; axis++) start[3 * n + axis] = before.places[3 * m + axis];
    }
    const span = before ? Math.min(Math.max(now - before.came, 60), 600) : 1;
    this.owners.set(owner, { step, ids, places, start, came: now, span });
    this.ask();
  }

  keep(peers) {
    for (const owner of this.owners.keys()) if (!peers.some((peer) => peer.id === owner)) this.owners.delete(owner);
    const picture = peers.find((peer) => peer.picture)?.picture;
    this.box = picture?.box ?? this.box; this.radius = picture?.radius;
    if (!this.owners.size) this.ask();
  }

  ask() { if (!this.asked) { this.asked = true; requestAnimationFrame(() => { this.asked = false; this.draw(); }); } }

  ball(owner) {
    const key = `${Math.round(hue(owner))} ${dark()}`;
    if (this.balls.has(key)) return this.balls.get(key);
    const ball = new OffscreenCanvas(SIDE, SIDE), pen = ball.getContext("2d"), r = SIDE / 2;
    const light = pen.createRadialGradient(0.7 * r, 0.6 * r, 0.05 * r, r, r, r);
    light.addColorStop(0, colour(owner, 0.93, 0.05)); light.addColorStop(0.3, colour(owner, 0.72, 0.15));
    light.addColorStop(0.75, colour(owner, 0.54, 0.14)); light.addColorStop(1, colour(owner, 0.36, 0.1));
    pen.fillStyle = light; pen.beginPath(); pen.arc(r, r, r - 0.5, 0, 7); pen.fill();
    this.balls.set(key, ball);
    return ball;
  }

  bounds() {
    if (this.box) return this.box;
    const most = [1e-6, 1e-6, 1e-6];
    for (const { places } of this.owners.values()) for (let n = 0; n < places.length; n++) if (places[n] > most[n % 3]) most[n % 3] = places[n];
    return (this.grown = this.grown ? this.grown.map((each, n) => Math.max(each, most[n])) : most);
  }

  draw() {
    const began = performance.now();
    let count = 0, moves = false, step = Infinity;
    for (const owner of this.owners.values()) { count += owner.ids.length; step = Math.min(step, owner.step); }
    // Where nobody simulates, the topology has all the room.
    const card = this.canvas.closest("section");
    if (card.hidden !== !count) { card.hidden = !count; this.onchange?.(); }
    if (!count) return;
    this.text.textContent = `${count.toLocaleString("en")} spheres of ${this.owners.size} ${this.owners.size === 1 ? "peer" : "peers"}, step ${step.toLocaleString("en")}, coloured by owner.`;
    this.canvas.setAttribute("aria-label", `Simulation: ${this.text.textContent}`);
    const { pen, width, height } = fit(this.canvas);
    const box = this.bounds();
    const size = this.radius ?? 0.28 * Math.cbrt(box[0] * box[1] * box[2] / count);
    const reach = Math.hypot(...box) / 2, scale = 0.94 * Math.min(width / (box[0] * Math.abs(Math.cos(this.turn)) + box[2] * Math.abs(Math.sin(this.turn)) + 2 * size), height / (box[1] * Math.cos(this.tilt) + (box[0] * Math.abs(Math.sin(this.turn)) + box[2] * Math.abs(Math.cos(this.turn))) * Math.abs(Math.sin(this.tilt)) + 2 * size));
    const ct = Math.cos(this.turn), st = Math.sin(this.turn), cp = Math.cos(this.tilt), sp = Math.sin(this.tilt);
    const project = (a, b, c) => {
      const u = a - box[0] / 2, v = b - box[1] / 2, w = c - box[2] / 2;
      const depth = -u * st + w * ct;
      return [width / 2 + scale * (u * ct + w * st), height / 2 - scale * (v * cp - depth * sp), v * sp + depth * cp];
    };
    pen.strokeStyle = ink("line"); pen.lineWidth = 1; pen.beginPath();
    for (let corner = 0; corner < 8; corner++) for (let axis = 0; axis < 3; axis++) {
      if (corner & (1 << axis)) continue;
      const end = (n) => project(n & 1 ? box[0] : 0, n & 2 ? box[1] : 0, n & 4 ? box[2] : 0);
      const one = end(corner), other = end(corner | (1 << axis));
      pen.moveTo(one[0], one[1]); pen.lineTo(other[0], other[1]);
    }
    pen.stroke();
    const points = new Array(count);
    let at = 0;
    for (const [id, owner] of this.owners) {
      const { start, places, came, span } = owner;
      const share = still.matches ? 1 : Math.min(1, (began - came) / span);
      moves ||= share < 1;
      const ball = this.ball(id);
      for (let n = 0; n < places.length; n += 3) {
        const [px, py, depth] = project(start[n] + (places[n] - start[n]) * share, start[n + 1] + (places[n + 1] - start[n + 1]) * share, start[n + 2] + (places[n + 2] - start[n + 2]) * share);
        points[at++] = { px, py, depth, ball };
      }
    }
    points.sort((one, other) => one.depth - other.depth);
    const wide = Math.max(2, 2 * size * scale);
    for (const { px, py, depth, ball } of points) {
      pen.globalAlpha = 0.72 + 0.28 * Math.min(1, (depth / reach + 1) / 2);
      pen.drawImage(ball, px - wide / 2, py - wide / 2, wide, wide);
    }
    pen.globalAlpha = 1;
    this.frames.push(performance.now() - began);
    if (this.frames.length > 300) this.frames.shift();
    if (moves) this.ask();
  }
}
