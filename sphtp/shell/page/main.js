// The page: what comes is shown. Text of peers becomes text, never markup.

import { takeToken, setToken, get, followStatus, followStates } from "./live.js";
import { setOwners, hue, format } from "./draw.js";
import { Topology, scaleText } from "./topology.js";
import { Picture } from "./picture.js";
import { Charts } from "./charts.js";

const $ = (id) => document.getElementById(id);
const topology = new Topology($("topology"));
const picture = new Picture($("picture"), $("picture-text"));
const charts = new Charts($("charts"));
let status = null, seen = null;
// For those who measure.
window.page = { picture, topology, times: [] };

function element(tag, text, of = {}) {
  const made = document.createElement(tag);
  if (text != null) made.textContent = text;
  return Object.assign(made, of);
}

// Rewrites only if something has changed, so that a screen reader is not disturbed.
function replace(place, made, key) {
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...made());
}

const WORD = { good: "Good:", notice: "Note:", warning: "Slow:", serious: "Serious:" };

function show(next) {
  const began = performance.now();
  status = next; seen = new Date();
  $("connection").dataset.state = "live";
  $("connection").textContent = "Live";
  document.body.classList.remove("stale");
  const peers = status.peers.filter((peer) => !peer.is_observer);
  setOwners(peers.map((peer) => peer.id));
  $("title").textContent = `${peers.length} peers, ${status.servers.length} servers`;
  document.title = `SphTP: ${peers.length} peers`;
  const { totals } = status;
  const numbers = [["Steps per second", format.rate(totals.steps_per_s)], ["Loss", format.share(totals.loss)],
    ["Round trip", format.time(totals.rtt)], ["Throughput", format.bytes(totals.bytes_per_s)],
    ["Messages per second", format.rate(totals.messages_per_s)]];
  replace($("numbers"), () => numbers.map(([name, value]) => { const box = element("div"); box.append(element("dt", name), element("dd", value)); return box; }), JSON.stringify(numbers));
  replace($("causes"), () => status.causes.map(({ level, text }) => { const line = element("li", null, { className: level }); line.append(element("b", WORD[level]), text); return line; }), JSON.stringify(status.causes));
  topology.show(status);
  picture.keep(peers);
  charts.add(totals);
  showPeers(peers);
  const whose = [...status.servers.filter((server) => server.clients != null).map((server) => [server.id, `server ${server.id.toString(16)}`]), ...status.peers.map((peer) => [peer.id, peer.name || `0x${peer.id.toString(16)}`])];
  const chosen = $("whose").value;
  replace($("whose"), () => whose.map(([id, name]) => element("option", name, { value: id })), JSON.stringify(whose));
  if (chosen && whose.some(([id]) => `${id}` === chosen)) $("whose").value = chosen;
  page.times.push(performance.now() - began);
  if (page.times.length > 300) page.times.shift();
}

function showPeers(peers) {
  const by = new Map();
  for (const link of status.links) { if (!by.has(link.source)) by.set(link.source, []); by.get(link.source).push(link); }
  const rows = peers.map((peer) => {
    const links = by.get(peer.id) ?? [], pace = peer.paces[0];
    const worst = (key) => links.length ? Math.max(...links.map((link) => link[key] ?? 0)) : null;
    const sum = links.reduce((total, link) => total + (link.bytes_per_s ?? 0), 0);
    return [peer.name || `0x${peer.id.toString(16)}`, peer.state ?? peer.problem ?? "not asked yet", format.rate(pace?.steps_per_s),
      format.share(pace?.waiting), format.share(worst("loss")), format.time(worst("rtt")), format.bytes(sum), peer.groups.join(", ") || "–", peer.topics.join(", ") || "–"];
  });
  const body = $("peers").tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, n) => {
    let line = body.rows[n];
    if (!line) {
      line = body.insertRow();
      const head = element("th"); head.scope = "row"; line.append(head);
      for (let cell = 1; cell < row.length; cell++) line.insertCell();
    }
    row.forEach((text, cell) => { if (line.cells[cell].textContent !== text) line.cells[cell].textContent = text; });
  });
}

let rows = [];
async function readMetrics() {
  if (document.hidden || !$("whose").value) return;
  try {
    const answer = await get(`peers/${$("whose").value}/metrics`);
    if (!answer.ok) throw new Error(await answer.text());
    rows = await answer.json();
    showMetrics();
  } catch (error) { rows = []; showMetrics(`not there: ${error.message}`); }
}

function showMetrics(problem) {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = rows.map(([name, labels, value]) => [name, Object.entries(labels).map(([key, each]) => `${key}="${each}"`).join(" "), `${value}`]);
  const fitting = texts.filter(([name, labels]) => words.every((word) => name.includes(word) || labels.toLowerCase().includes(word)));
  const count = problem ?? `${fitting.length} of ${rows.length}`;
  if ($("metrics-count").textContent !== count) $("metrics-count").textContent = count;
  const body = $("metrics").tBodies[0], shown = fitting.slice(0, 1000);
  while (body.rows.length > shown.length) body.deleteRow(-1);
  shown.forEach((row, n) => {
    let line = body.rows[n];
    if (!line) { line = body.insertRow(); for (const _ of row) line.insertCell(); }
    row.forEach((text, cell) => { if (line.cells[cell].textContent !== text) line.cells[cell].textContent = text; });
  });
}

function report(what) {
  if (what === "token") {
    $("token-form").hidden = false; $("connection").dataset.state = "lost";
    $("connection").textContent = "A token is needed"; $("token").focus();
    return;
  }
  $("connection").dataset.state = "lost";
  const text = seen ? `Connection lost. Last seen at ${seen.toLocaleTimeString()}; trying again.` : "Nobody answers; trying again.";
  if ($("connection").textContent !== text) $("connection").textContent = text;
  document.body.classList.add("stale");
}

function start() {
  followStatus(show, report);
  followStates((owner, step, ids, places) => picture.show(owner, step, ids, places));
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault(); setToken($("token").value); $("token-form").hidden = true; start();
});
$("colour").addEventListener("change", () => { topology.by = $("colour").value; $("scale-text").textContent = scaleText(topology.by); topology.draw(); });
$("filter").addEventListener("input", () => showMetrics());
$("whose").addEventListener("change", () => { delete $("whose").dataset.dirty; readMetrics(); });
$("scale-text").textContent = scaleText("loss");
addEventListener("resize", () => { topology.draw(); charts.draw(); picture.ask(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { topology.draw(); charts.draw(); picture.ask(); });
setInterval(readMetrics, 2500);
takeToken();
start();
