// The page: what comes is shown. Text of peers becomes text, never markup.

import { takeToken, setToken, get, followStatus, followStates } from "./live.js";
import { setOwners, colour, format } from "./draw.js";
import { Topology, scaleText } from "./topology.js";
import { Picture } from "./picture.js";
import { Charts } from "./charts.js";

const $ = (id) => document.getElementById(id);
const topology = new Topology($("topology"), (id) => { describe(); if (id !== null) pick(`${id}`); });
const picture = new Picture($("picture"), $("picture-text"));
picture.onchange = () => topology.draw();
const charts = new Charts($("charts"));
let status = null, seen = null;
// For those who measure.
window.page = { picture, topology, charts, show, times: [] };

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
  if ($("connection").textContent !== "Live") $("connection").textContent = "Live";
  document.body.classList.remove("stale");
  const peers = status.peers.filter((peer) => !peer.is_observer);
  setOwners(peers.map((peer) => peer.id));
  $("title").textContent = `${count(peers.length, "peer")}, ${count(status.servers.length, "server")}`;
  document.title = `SphTP: ${count(peers.length, "peer")}`;
  const { totals } = status;
  const numbers = [["Steps per second", format.rate(totals.steps_per_s)], ["Loss", format.share(totals.loss)],
    ["Round trip", format.time(totals.rtt)], ["Throughput", format.bytes(totals.bytes_per_s)],
    ["Messages per second", format.rate(totals.messages_per_s)]];
  replace($("numbers"), () => numbers.map(([name, value]) => { const box = element("div"); box.append(element("dt", name), element("dd", value)); return box; }), JSON.stringify(numbers));
  replace($("causes"), () => status.causes.map(({ level, text }) => { const line = element("li", null, { className: level }); line.append(element("b", WORD[level]), text); return line; }), JSON.stringify(status.causes));
  topology.show(status);
  picture.keep(peers);
  describe();
  charts.add(totals);
  showPeers(peers);
  showFlows(peers);
  // The one that looks has few numbers of interest, and is the last.
  const whose = [...status.servers.map((server) => [server.id, `server ${hex(server.id)}`]),
    ...peers.map((peer) => [peer.id, label(peer)]), ...status.peers.filter((peer) => peer.is_observer).map((peer) => [peer.id, `${label(peer)} (looks on)`])];
  replace($("whose"), () => whose.map(([id, name]) => element("option", name, { value: id })), JSON.stringify(whose));
  if (picked !== null && !whose.some(([id]) => `${id}` === picked)) picked = null;
  const before = $("whose").value, wanted = picked ?? `${(peers[0] ?? { id: whose[0]?.[0] ?? "" }).id}`;
  if (before !== wanted) $("whose").value = wanted;
  if (asked !== wanted) readMetrics();
  page.times.push(performance.now() - began);
  if (page.times.length > 300) page.times.shift();
}

function hex(id) { return `0x${id.toString(16).padStart(8, "0")}`; }
function label(peer) { return peer.name || hex(peer.id); }

function describe() {
  const text = topology.describe();
  if ($("chosen").textContent !== text) $("chosen").textContent = text;
}

// Changes the cells that differ, so that a table of 200 rows costs little and a selection stays.
const filled = new Map();
function fill(table, rows) {
  const body = table.tBodies[0], before = filled.get(table) ?? [];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, n) => {
    let had = before[n];
    const line = n < before.length ? body.rows[n] : body.insertRow();
    if (!had) {
      const head = element("th"); head.scope = "row"; line.append(head);
      for (let cell = 1; cell < row.length; cell++) line.insertCell();
      had = [];
    }
    row.forEach((text, cell) => { if (had[cell] !== text) line.cells[cell].textContent = text; });
  });
  filled.set(table, rows);
}

function showPeers(peers) {
  const by = new Map();
  for (const link of status.links) { if (!by.has(link.source)) by.set(link.source, []); by.get(link.source).push(link); }
  fill($("peers"), peers.map((peer) => {
    const links = by.get(peer.id) ?? [], pace = peer.paces[0];
    const worst = (key) => links.length ? Math.max(...links.map((link) => link[key] ?? 0)) : null;
    const sum = links.reduce((total, link) => total + (link.bytes_per_s ?? 0), 0);
    return [label(peer), peer.state ?? peer.problem ?? "not asked yet", format.rate(pace?.steps_per_s),
      format.share(pace?.waiting), pace?.waits[0]?.name ?? "–", format.share(worst("loss")), format.time(worst("rtt")), format.bytes(sum), `${peer.unread}`];
  }));
  const colours = peers.map((peer) => colour(peer.id));
  if (`${colours}` !== $("peers").dataset.colours) {
    $("peers").dataset.colours = `${colours}`;
    colours.forEach((own, n) => $("peers").tBodies[0].rows[n].cells[0].style.setProperty("--owner", own));
  }
}

const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
// What is on its way is no delay: datagrams from which a receiver is shown as behind.
const FAR = 10;

// Groups in lock step, and topics: those who take part, how fast, and who holds them up.
function showFlows(peers) {
  const names = new Map(status.peers.map((peer) => [peer.id, label(peer)]));
  const groups = new Map(), lost = new Map();
  for (const peer of peers) {
    for (const name of peer.groups) if (!groups.has(name)) groups.set(name, { members: 0, rates: [], waits: new Map() });
    for (const pace of peer.paces) {
      if (!groups.has(pace.name)) groups.set(pace.name, { members: 0, rates: [], waits: new Map() });
      const group = groups.get(pace.name);
      group.members++;
      if (pace.steps_per_s != null) group.rates.push(pace.steps_per_s);
      for (const wait of pace.waits) group.waits.set(wait.name, (group.waits.get(wait.name) ?? 0) + wait.share);
    }
    for (const topic of peer.subscriptions) { const key = `${topic.peer} ${topic.topic}`; lost.set(key, (lost.get(key) ?? 0) + topic.lost); }
  }
  const rows = [...groups].map(([name, { members, rates, waits }]) => {
    const most = [...waits].sort((one, other) => other[1] - one[1])[0];
    const rate = rates.length ? rates.reduce((sum, one) => sum + one, 0) / rates.length : null;
    return [name, "lock step", count(members, "member"), `${format.rate(rate)} steps/s`, most ? `waits for ${most[0]}` : "waits for nobody"];
  });
  for (const peer of peers) for (const source of peer.sources) {
    const away = source.topics.reduce((sum, topic) => sum + (lost.get(`${peer.id} ${topic}`) ?? 0), 0);
    const facts = [source.behind >= FAR ? `${names.get(source.slowest) ?? "one"} is ${source.behind} behind` : "nobody is behind"];
    if (source.repairs_per_s >= 0.1) facts.push(`${format.rate(source.repairs_per_s)} repairs/s`);
    if (away) facts.push(`${away} lost`);
    rows.push([source.topics.join(", "), `topic of ${label(peer)}`, count(source.receivers, "receiver"), `${format.rate(source.messages_per_s)} msgs/s`, facts.join("; ")]);
  }
  fill($("flows"), rows);
  $("no-flows").hidden = rows.length > 0;
}

// Whose metrics somebody wants to see, whose were asked for last, and what came.
let picked = null, asked = null, rows = [];
function pick(id) { picked = id; $("whose").value = id; readMetrics(); }

async function readMetrics() {
  if (document.hidden || !$("whose").value) return;
  asked = $("whose").value;
  const peer = status.peers.find((one) => `${one.id}` === $("whose").value);
  if (peer && !peer.is_observer && peer.state === null) { rows = []; showMetrics(`not there: ${peer.problem ?? "not asked yet"}`); return; }
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
  fill($("metrics"), fitting.slice(0, 1000));
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
  followStatus((next) => page.show(next), report);
  followStates((owner, step, ids, places) => picture.show(owner, step, ids, places));
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault(); setToken($("token").value); $("token-form").hidden = true; start();
});
$("colour").addEventListener("change", () => { topology.by = $("colour").value; $("scale-text").textContent = scaleText(topology.by); topology.draw(); });
$("filter").addEventListener("input", () => showMetrics());
$("whose").addEventListener("change", () => pick($("whose").value));
$("scale-text").textContent = scaleText("loss");
addEventListener("resize", () => { topology.draw(); charts.draw(); picture.ask(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { topology.draw(); charts.draw(); picture.ask(); });
setInterval(readMetrics, 2500);
takeToken();
start();
