// The two answers without an end: lines of JSON, and states of a simulation as bytes.
// The token is in the fragment, which no browser sends to anybody, and is removed from the address.

const KEY = "sphtp-token";

export function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token !== null) {
    sessionStorage.setItem(KEY, token);
    history.replaceState(null, "", location.pathname);
  }
}

export function setToken(token) { sessionStorage.setItem(KEY, token); }

export function get(path, signal) {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  return fetch(path, { headers, signal, cache: "no-store" });
}

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

// Read an answer again and again; `silence` seconds without a byte are its end, too.
async function follow(path, silence, take, report) {
  for (let wait = 0.5; ; wait = Math.min(2 * wait, 5)) {
    const control = new AbortController();
    let watch;
    const alive = () => { clearTimeout(watch); watch = setTimeout(() => control.abort(), 1000 * silence); };
    try {
      alive();
      const answer = await get(path, control.signal);
      if (answer.status === 401) { report("token"); clearTimeout(watch); return; }
      if (!answer.ok) throw new Error(`${answer.status}`);
      const reader = answer.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        alive();
        take(value);
        wait = 0.5;
      }
    } catch { /* It is reported below. */ }
    clearTimeout(watch);
    report("lost");
    await pause(wait);
  }
}

export function followStatus(show, report) {
  let rest = "";
  let decoder = new TextDecoder();
  follow("status?follow", 15, (bytes) => {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop();
    // Of several only the newest counts.
    if (lines.length) show(JSON.parse(lines.at(-1)));
  }, (what) => { rest = ""; decoder = new TextDecoder(); report(what); });
}

const HEAD = 20;

export function followStates(show) {
  let rest = new Uint8Array();
  follow("states", 1e6, (bytes) => {
    const all = new Uint8Array(rest.length + bytes.length);
    all.set(rest); all.set(bytes, rest.length);
    const view = new DataView(all.buffer);
    let at = 0;
    while (all.length - at >= HEAD) {
      const size = view.getUint32(at, true) + 4;
      if (all.length - at < size) break;
      const count = view.getUint32(at + 16, true);
      // Copies, for the places may stand at any byte.
      const ids = new Uint32Array(all.slice(at + HEAD, at + HEAD + 4 * count).buffer);
      const places = new Float32Array(all.slice(at + HEAD + 4 * count, at + size).buffer);
      show(view.getUint32(at + 4, true), Number(view.getBigUint64(at + 8, true)), ids, places);
      at += size;
    }
    rest = all.slice(at);
  }, () => { rest = new Uint8Array(); });
}
