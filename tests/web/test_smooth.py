"""The page with 200 peers, as a browser draws it."""

from pathlib import Path
from typing import Final

import pytest

from sphtp.web import open_web
from tests.deadline import within
from tests.web.browser import needs_chromium, open_browser

pytestmark = [pytest.mark.trio(run=within(60)), pytest.mark.soak, needs_chromium]

MOST_WORK: Final = {"spheres": 33.0, "status": 100.0}
"""Milliseconds of work: 30 pictures of the spheres are drawn in a second, of which a status, once a
second, takes the place of three at most."""

# Everything of 200 peers: a status each second, and of each four states a second of 20 spheres.
# Returns the times from frame to frame of three seconds, in milliseconds; and the times that one
# status and one drawing of the spheres take, down to the pixels.
FRAMES: Final = """(async () => {
  const peers = [...Array(200).keys()].map((n) => ({
    id: 2 * n + 1, name: `peer-${`${n}`.padStart(3, "0")}`, addresses: [], topics: [`state/${n}`],
    groups: ["all"], state: "established", servers: [2, 4, 6], age: 0.5, problem: null,
    unread: n % 3, is_observer: false, picture: { box: [2, 1, 1], radius: 0.02 },
    sources: [{ topics: [`state/${n}`], receivers: 1, messages_per_s: 4, repairs_per_s: 0,
      behind: 0, slowest: null }],
    subscriptions: [], paces: [{ name: "all", step: 1, steps_per_s: 100, step_seconds: 0.01,
      waiting: 0.4, waits: [{ name: "peer-007", share: 0.3 }] }] }));
  const servers = [2, 4, 6].map((id) => ({ id, state: "active", address: "", clients: null }));
  const status = (round) => ({ version: 1, observer: null, pause: 4, servers, peers,
    links: peers.flatMap((peer, n) => [1, 7, 31].map((far) => ({ source: peer.id,
      target: peers[(n + far) % 200].id, services: ["group"], loss: ((n + round) % 10) / 500,
      rtt: (n + round) / 1e5, packets_per_s: 100, bytes_per_s: 1e5 + round, messages_per_s: 100,
      resent_per_s: 0, waiting: 0, unread: 0 }))),
    totals: { packets_per_s: 6e4, bytes_per_s: 6e7, messages_per_s: 6e4, loss: 0.01, rtt: 0.001,
      steps_per_s: 100 + round },
    causes: [{ level: "warning", about: 15, text: `all waits for peer-007 (${round}).` }] });
  const ids = Uint32Array.from({ length: 20 }, (_, n) => n), times = [];
  let round = 0, turn = 0;
  const state = () => {
    const places = Float32Array.from({ length: 60 }, (_, n) => Math.random() * (n % 3 ? 1 : 2));
    page.picture.show(peers[turn++ % 200].id, round, ids, places);
  };
  let last = await new Promise(requestAnimationFrame), next = 0;
  const began = last;
  while (last - began < 3000) {
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    if (now >= next) { page.show(status(round++)); next = now + 1000; }
    for (let due = 0.8 * Math.min(now - last, 100); due > 0; due--) state();
    last = now;
  }
  const works = { status: [], spheres: [] };
  const timed = (name, work, canvas) => {
    const start = performance.now();
    work(); canvas.getContext("2d").getImageData(0, 0, 1, 1);
    works[name].push(performance.now() - start);
  };
  for (let n = 0; n < 25; n++) {
    const next = status(round++);
    timed("status", () => { page.show(next); document.body.offsetHeight; }, page.topology.canvas);
    for (let m = 0; m < 50; m++) state();
    timed("spheres", () => page.picture.draw(), page.picture.canvas);
    await new Promise(requestAnimationFrame);
  }
  return { times, ...works };
})()"""


async def test_200_peers_are_drawn_smoothly(tmp_path: Path) -> None:
    async with open_web(page=True) as web, open_browser(tmp_path / "browser") as browser:
        await browser.look(width=1280, height=1000, still=False)
        await browser.visit(web.page_url)
        await browser.until("globalThis.page !== undefined")
        # The server knows of nobody, and says so each second.
        await browser.run(
            "((show) => { page.show = (it) => { if (it.peers.length) show(it); }; })(page.show)"
        )
        found = await browser.run(FRAMES)
        frames = sorted(found["times"])
        late = frames[len(frames) * 95 // 100]
        print(f"frames: median {frames[len(frames) // 2]:.1f} ms, p95 {late:.1f} ms")
        # The shortest time is the one in which no other program had the processor.
        works = {name: min(found[name]) for name in MOST_WORK}
        print(", ".join(f"{name}: {took:.1f} ms" for name, took in works.items()))
        await browser.photograph(tmp_path / "200-peers.png")
        assert [name for name, took in works.items() if took > MOST_WORK[name]] == []
        # Nobody has metrics of peers that are not there, and no page reads what it has drawn.
        expected = ("502", "willReadFrequently")
        assert [it for it in browser.complaints if not any(one in it for one in expected)] == []
