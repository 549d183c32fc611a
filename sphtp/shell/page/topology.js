// Servers within, peers on a circle around them, and a line for each pair that has channels.
// A circle needs no forces that settle: 200 peers stand at once, and do not move with the next one.

import { fit, ink, heat, hue, format } from "./draw.js";

export function linkHeat(link, by) {
  // 5 % of loss, or 100 ms, is as bad as it gets; the scale is logarithmic.
  return by === "loss" ? Math.log1p(link.loss * 1000) / Math.log1p(50)
    : Math.log1p((link.rtt ?? 0) * 1e4) / Math.log1p(1000);
}

export class Topology {
  constructor(canvas) { this.canvas = canvas; this.by = "loss"; this.status = null; }

  show(status) { this.status = status; this.draw(); }

  draw() {
    const { pen, width, height } = fit(this.canvas);
    const { servers, links, causes } = this.status ?? { servers: [], links: [], causes: [] };
    const peers = (this.status?.peers ?? []).filter((peer) => !peer.is_observer);
    const x = width / 2, y = height / 2;
    const named = peers.length <= 40;
    const rx = Math.max(40, width / 2 - (named ? 90 : 24)), ry = Math.max(40, height / 2 - 34);
    const at = new Map();
    peers.forEach((peer, n) => {
      const angle = 2 * Math.PI * n / peers.length - Math.PI / 2;
      at.set(peer.id, { x: x + rx * Math.cos(angle), y: y + ry * Math.sin(angle), angle });
    });
    const inner = Math.min(rx, ry) * 0.32;
    servers.forEach((server, n) => {
      const angle = 2 * Math.PI * n / servers.length;
      const r = servers.length > 1 ? inner : 0;
      at.set(server.id, { x: x + r * Math.cos(angle), y: y + r * Math.sin(angle) });
    });
    pen.lineWidth = 1; pen.strokeStyle = ink("line"); pen.setLineDash([2, 4]); pen.beginPath();
    for (const peer of peers) for (const id of peer.servers) {
      const from = at.get(peer.id), to = at.get(id);
      if (to) { pen.moveTo(from.x, from.y); pen.lineTo(to.x, to.y); }
    }
    pen.stroke(); pen.setLineDash([]);
    // The worse of both directions, in few colours, so that a thousand links are few strokes.
    const pairs = new Map();
    for (const link of links) {
      const a = at.get(link.source), b = at.get(link.target);
      if (!a || !b) continue;
      const key = link.source < link.target ? `${link.source} ${link.target}` : `${link.target} ${link.source}`;
      const share = linkHeat(link, this.by), before = pairs.get(key);
      if (!before || before.share < share) pairs.set(key, { a, b, share });
    }
    const steps = new Map();
    for (const pair of pairs.values()) {
      const step = Math.round(12 * Math.min(1, pair.share));
      if (!steps.has(step)) steps.set(step, []);
      steps.get(step).push(pair);
    }
    pen.lineWidth = peers.length > 60 ? 1.2 : 2.6; pen.lineCap = "round";
    for (const [step, those] of [...steps].sort((one, other) => one[0] - other[0])) {
      pen.strokeStyle = heat(step / 12); pen.beginPath();
      for (const { a, b } of those) { pen.moveTo(a.x, a.y); pen.quadraticCurveTo((a.x + b.x + x) / 3, (a.y + b.y + y) / 3, b.x, b.y); }
      pen.stroke();
    }
    pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "middle";
    for (const server of servers) {
      const p = at.get(server.id);
      pen.fillStyle = server.state === "active" ? ink("soft") : ink("warning");
      pen.beginPath(); pen.roundRect(p.x - 9, p.y - 9, 18, 18, 4); pen.fill();
      pen.textAlign = "center";
      pen.fillText(`server ${server.id.toString(16).padStart(8, "0").slice(0, 4)}`, p.x, p.y + 20);
    }
    const bad = new Set(causes.filter((c) => c.level === "warning" || c.level === "serious").map((c) => c.about));
    const radius = peers.length > 60 ? 5 : 9;
    for (const peer of peers) {
      const p = at.get(peer.id);
      pen.fillStyle = peer.state ? `hsl(${hue(peer.id)} 62% 52%)` : ink("soft");
      pen.beginPath(); pen.arc(p.x, p.y, radius, 0, 7); pen.fill();
      if (bad.has(peer.id)) { pen.lineWidth = 2.5; pen.strokeStyle = ink("serious"); pen.beginPath(); pen.arc(p.x, p.y, radius + 3.5, 0, 7); pen.stroke(); }
      if (!named && !bad.has(peer.id)) continue;
      const c = Math.cos(p.angle), s = Math.sin(p.angle);
      pen.fillStyle = ink("ink"); pen.textAlign = c > 0.3 ? "left" : c < -0.3 ? "right" : "center";
      pen.fillText((peer.name || peer.id.toString(16)).slice(0, 18), p.x + 16 * c, p.y + (Math.abs(c) > 0.3 ? 0 : 18 * Math.sign(s)));
    }
    const lossy = links.filter((link) => link.loss >= 0.01).length;
    this.canvas.setAttribute("aria-label", `${peers.length} peers, ${servers.length} servers, ${pairs.size} links, ${lossy} of them with losses over 1 %. The table of peers has the figures.`);
  }
}

export function scaleText(by) { return by === "loss" ? "0 to 5 % of packets" : `0 to ${format.time(0.1)}`; }
