// The simulation as it moves. Peers publish a few states a second; what is drawn is between the
// last two, a little late, so that spheres move and do not jump. Ready-made pictures of spheres,
// one for each owner, are copied from the farthest to the nearest.

import { fit, hue, colour, ink, still, dark } from "./draw.js";

const SIDE = 48, MOST_BALLS = 2000, MANY = 3000, LONG = 6;
// Layers from the farthest to the nearest: within one, the order is not seen.
const LAYERS = 512;

export class Picture {
  constructor(canvas, text) {
    this.canvas = canvas; this.text = text;
    this.owners = new Map(); this.balls = new Map();
    this.turn = -0.5; this.tilt = 0.35; this.box = null; this.radius = null;
    this.frames = []; this.asked = false; this.worded = -Infinity; this.px = [];
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

  // The picture of a sphere of an owner, `side` pixels wide: copied as it is, which is much faster
  // than to scale it each time.
  ball(owner, side = SIDE) {
    const key = `${hue(owner)} ${side} ${dark()}`;
    if (this.balls.has(key)) return this.balls.get(key);
    if (this.balls.size > MOST_BALLS) this.balls.clear();
    const ball = new OffscreenCanvas(side, side), pen = ball.getContext("2d"), r = side / 2;
    const light = pen.createRadialGradient(0.7 * r, 0.6 * r, 0.05 * r, r, r, r);
    light.addColorStop(0, colour(owner, 0.93, 0.05)); light.addColorStop(0.3, colour(owner, 0.72, 0.15));
    light.addColorStop(0.75, colour(owner, 0.54, 0.14)); light.addColorStop(1, colour(owner, 0.36, 0.1));
    pen.fillStyle = light; pen.beginPath(); pen.arc(r, r, r - 0.5, 0, 7); pen.fill();
    const image = ball.transferToImageBitmap();
    this.balls.set(key, image);
    return image;
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
    if (began - this.worded > 500) {
      this.worded = began;
      this.text.textContent = `${count.toLocaleString("en")} spheres of ${this.owners.size} ${this.owners.size === 1 ? "peer" : "peers"}, step ${step.toLocaleString("en")}, coloured by owner.`;
      this.canvas.setAttribute("aria-label", `Simulation: ${this.text.textContent}`);
    }
    const { pen, width, height, ratio } = fit(this.canvas);
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
    if (this.px.length < count) for (const name of ["px", "py", "layer", "from", "order"]) this[name] = new (name[0] === "p" ? Float32Array : Uint32Array)(2 * count);
    const { px, py, layer, from, order } = this, starts = new Uint32Array(LAYERS + 1), balls = [];
    const wide = Math.max(2, Math.round(2 * size * scale * ratio)), half = wide / 2;
    // Whole pixels are copied the fastest, and few spheres move the smoothest between them.
    const snap = count > MANY ? Math.round : (place) => place;
    let at = 0;
    for (const [id, { start, places, came, span }] of this.owners) {
      const share = still.matches ? 1 : Math.min(1, (began - came) / span);
      moves ||= share < 1;
      balls.push(this.ball(id, wide));
      for (let n = 0; n < places.length; n += 3, at++) {
        const a = start[n] + (places[n] - start[n]) * share - box[0] / 2;
        const b = start[n + 1] + (places[n + 1] - start[n + 1]) * share - box[1] / 2;
        const c = start[n + 2] + (places[n + 2] - start[n + 2]) * share - box[2] / 2;
        const deep = c * ct - a * st, depth = b * sp + deep * cp;
        px[at] = snap((width / 2 + scale * (a * ct + c * st)) * ratio - half);
        py[at] = snap((height / 2 - scale * (b * cp - deep * sp)) * ratio - half);
        layer[at] = Math.max(0, Math.min(LAYERS - 1, (depth / reach + 1) / 2 * LAYERS)) | 0;
        from[at] = balls.length - 1;
        starts[layer[at] + 1]++;
      }
    }
    for (let n = 0; n < LAYERS; n++) starts[n + 1] += starts[n];
    const ends = starts.slice();
    for (let n = 0; n < count; n++) order[ends[layer[n]]++] = n;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    for (let far = 0; far < LAYERS; far++) {
      if (starts[far] === starts[far + 1]) continue;
      pen.globalAlpha = 0.72 + 0.28 * (far + 0.5) / LAYERS;
      for (let n = starts[far]; n < starts[far + 1]; n++) { const one = order[n]; pen.drawImage(balls[from[one]], px[one], py[one]); }
    }
    pen.globalAlpha = 1;
    const cost = performance.now() - began;
    this.frames.push(cost);
    if (this.frames.length > 300) this.frames.shift();
    // What takes long to draw is drawn less often, so that the page answers in between.
    if (moves && cost < LONG) this.ask();
    else if (moves && !this.later) this.later = setTimeout(() => { this.later = 0; this.ask(); }, Math.min(2 * cost, 100));
  }
}
