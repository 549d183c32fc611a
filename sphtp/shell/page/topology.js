// Servers within, peers on a circle around them, and a line for each pair that has channels.
// A circle needs no forces that settle: 200 peers stand at once, and do not move with the next one.
// One peer may be chosen, by a click or with the arrow keys; `onchoose` is called with its id.

import { fit, ink, heat, colour, format } from "./draw.js";

export function linkHeat(link, by) {
  // 5 % of loss, or 100 ms, is as bad as it gets; the scale is logarithmic.
  return by === "loss" ? Math.log1p(link.loss * 1000) / Math.log1p(50)
    : Math.log1p((link.rtt ?? 0) * 1e4) / Math.log1p(1000);
}

const linkText = (link, by) => by === "loss" ? format.share(link.loss) : format.time(link.rtt);
const named = (peer) => peer.name || `0x${peer.id.toString(16).padStart(8, "0")}`;
const MOST_NAMES = 40, MOST_TEXTS = 12;

export class Topology {
  constructor(canvas, onchoose) {
    this.canvas = canvas; this.by = "loss"; this.status = null; this.chosen = null; this.onchoose = onchoose;
    this.places = new Map();
    canvas.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      const ids = this.peers().map((peer) => peer.id);
      if (event.key === "Escape") this.choose(null);
      else if (way && ids.length) {
        const now = ids.indexOf(this.chosen);
        this.choose(ids[now < 0 ? 0 : (now + way + ids.length) % ids.length]);
        event.preventDefault();
      }
    });
    canvas.addEventListener("click", (event) => {
      const near = [...this.places].map(([id, p]) => [id, Math.hypot(p.x - event.offsetX, p.y - event.offsetY)]);
      const [id, far] = near.reduce((best, one) => one[1] < best[1] ? one : best, [null, 24]);
      this.choose(far < 24 ? id : null);
    });
  }

  peers() { return (this.status?.peers ?? []).filter((peer) => !peer.is_observer); }

  choose(id) { this.chosen = id; this.draw(); this.onchoose?.(id); }

  show(status) {
    this.status = status;
    if (this.chosen !== null && !status.peers.some((peer) => peer.id === this.chosen)) this.choose(null);
    this.draw();
  }

  draw() {
    const { pen, width, height } = fit(this.canvas);
    const { servers, links, causes } = this.status ?? { servers: [], links: [], causes: [] };
    const peers = this.peers();
    const x = width / 2, y = height / 2;
    const withNames = peers.length <= MOST_NAMES;
    const rx = Math.max(40, width / 2 - (withNames ? 96 : 24)), ry = Math.max(40, height / 2 - 36);
    const at = new Map();
    this.places.clear();
    peers.forEach((peer, n) => {
      const angle = 2 * Math.PI * n / peers.length - (peers.length === 2 ? Math.PI : Math.PI / 2);
      const place = { x: x + rx * Math.cos(angle), y: y + ry * Math.sin(angle), angle };
      at.set(peer.id, place); this.places.set(peer.id, place);
    });
    // One above the other, so that their names have room.
    const inner = Math.min(rx, ry) * 0.36;
    servers.forEach((server, n) => {
      const angle = 2 * Math.PI * n / servers.length - Math.PI / 2;
      const r = servers.length > 1 ? inner : 0;
      at.set(server.id, { x: x + r * Math.cos(angle), y: y + r * Math.sin(angle) });
    });
    // Thin lines, each on its own, where there are many: one path of hundreds takes many times as long.
    const many = peers.length > MOST_NAMES;
    pen.lineWidth = 1; pen.strokeStyle = ink(many ? "line" : "faint"); pen.setLineDash(many ? [] : [2, 4]);
    for (const peer of peers) for (const id of peer.servers) {
      const from = at.get(peer.id), to = at.get(id);
      if (to) { pen.beginPath(); pen.moveTo(from.x, from.y); pen.lineTo(to.x, to.y); pen.stroke(); }
    }
    pen.setLineDash([]);
    // The worse of both directions, in few colours, so that a thousand links are few strokes.
    const pairs = new Map();
    for (const link of links) {
      const a = at.get(link.source), b = at.get(link.target);
      if (!a || !b) continue;
      const key = link.source < link.target ? `${link.source} ${link.target}` : `${link.target} ${link.source}`;
      const share = linkHeat(link, this.by), before = pairs.get(key);
      if (!before || before.share < share) pairs.set(key, { a, b, share, link });
    }
    const steps = new Map();
    for (const pair of pairs.values()) {
      // Links bend towards the middle, and those that would cross it go around the servers.
      const { a, b } = pair, far = Math.hypot(a.x - b.x, a.y - b.y) || 1;
      pair.cx = (a.x + b.x + x) / 3; pair.cy = (a.y + b.y + y) / 3;
      if (servers.length && Math.hypot(pair.cx - x, pair.cy - y) < 0.1 * far) {
        // Upwards, for the name of a server stands below it.
        const aside = 0.8 * Math.min(rx, ry) / far * (a.x < b.x ? -1 : 1);
        pair.cx += (a.y - b.y) * aside; pair.cy += (b.x - a.x) * aside;
      }
      const step = Math.round(12 * Math.min(1, pair.share));
      if (!steps.has(step)) steps.set(step, []);
      steps.get(step).push(pair);
    }
    pen.lineCap = many ? "butt" : "round";
    for (const [step, those] of [...steps].sort((one, other) => one[0] - other[0])) {
      pen.lineWidth = many ? 1 : 2 + step / 8;
      pen.strokeStyle = heat(step / 12);
      for (const { a, b, cx, cy, link } of those) {
        if (this.chosen !== null && link.source !== this.chosen && link.target !== this.chosen) continue;
        pen.beginPath(); pen.moveTo(a.x, a.y); pen.quadraticCurveTo(cx, cy, b.x, b.y); pen.stroke();
      }
    }
    pen.textBaseline = "middle"; pen.textAlign = "center";
    const text = (words, px, py, colour) => {
      // A rim in the colour of the ground, so that no line crosses a name.
      pen.lineWidth = 6; pen.lineJoin = "round"; pen.strokeStyle = ink("card"); pen.strokeText(words, px, py);
      pen.fillStyle = colour; pen.fillText(words, px, py);
    };
    if (pairs.size <= MOST_TEXTS) {
      pen.font = "12px system-ui, sans-serif";
      for (const { a, b, cx, cy, link } of pairs.values()) {
        text(linkText(link, this.by), (a.x + b.x) / 4 + cx / 2, (a.y + b.y) / 4 + cy / 2, ink("soft"));
      }
    }
    pen.font = "12px system-ui, sans-serif";
    for (const server of servers) {
      const p = at.get(server.id);
      const well = server.state === "active";
      pen.fillStyle = well ? ink("soft") : ink("warning");
      pen.beginPath(); pen.roundRect(p.x - 9, p.y - 9, 18, 18, 5); pen.fill();
      const label = `server ${server.id.toString(16).padStart(8, "0").slice(0, 4)}`;
      text(well ? label : `${label} ${server.state}`, p.x, p.y + 21, well ? ink("soft") : ink("warning"));
    }
    const bad = new Set(causes.filter((c) => c.level === "warning" || c.level === "serious").map((c) => c.about));
    const radius = peers.length > 60 ? 5 : 10;
    pen.font = "600 13px system-ui, sans-serif";
    for (const peer of peers) {
      const p = at.get(peer.id);
      pen.fillStyle = ink("card"); pen.beginPath(); pen.arc(p.x, p.y, radius + 2, 0, 7); pen.fill();
      pen.fillStyle = peer.state ? colour(peer.id) : ink("soft");
      pen.beginPath(); pen.arc(p.x, p.y, radius, 0, 7); pen.fill();
      if (bad.has(peer.id)) { pen.lineWidth = 2.5; pen.strokeStyle = ink("serious"); pen.beginPath(); pen.arc(p.x, p.y, radius + 4, 0, 7); pen.stroke(); }
      if (peer.id === this.chosen) { pen.lineWidth = 2; pen.strokeStyle = ink("accent"); pen.setLineDash([4, 3]); pen.beginPath(); pen.arc(p.x, p.y, radius + 8, 0, 7); pen.stroke(); pen.setLineDash([]); }
      if (!withNames && !bad.has(peer.id) && peer.id !== this.chosen) continue;
      const c = Math.cos(p.angle), s = Math.sin(p.angle);
      pen.textAlign = c > 0.3 ? "left" : c < -0.3 ? "right" : "center";
      const away = radius + 9;
      text(named(peer).slice(0, 18), p.x + away * c, p.y + (Math.abs(c) > 0.3 ? away * 0.4 * s : (away + 4) * Math.sign(s)), ink("ink"));
    }
    const lossy = links.filter((link) => link.loss >= 0.01).length;
    this.canvas.setAttribute("aria-label", `Peers: ${peers.length}, servers: ${servers.length}, links: ${pairs.size}, with losses over 1 %: ${lossy}.`);
  }

  // One peer in words, for those who chose it.
  describe() {
    const peer = this.peers().find((one) => one.id === this.chosen);
    if (!peer) return "Choose a peer with a click, or with the arrow keys.";
    const names = new Map(this.status.peers.map((one) => [one.id, named(one)]));
    const words = [`${named(peer)}: ${peer.state ?? peer.problem ?? "not asked yet"}`];
    for (const pace of peer.paces) {
      const waits = pace.waits.length ? `, most for ${pace.waits[0].name}` : "";
      words.push(`${pace.name} at ${format.rate(pace.steps_per_s)} steps a second, waiting ${format.share(pace.waiting)} of the time${waits}`);
    }
    for (const link of this.status.links.filter((one) => one.source === peer.id).slice(0, 4)) {
      words.push(`to ${names.get(link.target) ?? link.target.toString(16)} ${format.bytes(link.bytes_per_s)}, ${format.time(link.rtt)}, ${format.share(link.loss)} lost`);
    }
    if (peer.unread) words.push(`${peer.unread} messages not read`);
    return `${words.join("; ")}.`;
  }
}

export function scaleText(by) { return by === "loss" ? "0 to 5 % of packets" : `0 to ${format.time(0.1)}`; }
