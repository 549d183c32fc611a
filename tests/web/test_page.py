"""The page of a cluster in a real browser: its contents, its looks, and what it survives.

``SPHTP_PICTURES`` names a folder for the pictures that are taken.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

import sphtp
from sphtp.observe import serve_status
from sphtp.web import Web, open_web
from tests.deadline import within
from tests.shell.test_client import agreed, client, cluster, kept, server
from tests.web.browser import Browser, needs_chromium, open_browser

pytestmark = [pytest.mark.trio(run=within(60)), pytest.mark.soak, needs_chromium]

TOKEN: Final = "a token of the tests"
LIVE: Final = "document.querySelector('#connection').dataset.state === 'live'"
CAUSES: Final = "document.querySelector('#causes').textContent"
SIZES: Final = {"wide": (1280, 1700), "narrow": (390, 2600)}

# The text that has too little contrast with what is behind it, by the formula of WCAG 2.
PALE: Final = """(() => {
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [x, y, z] = [r, g, b].map((c) => linear(c / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (it) => {
    for (; it; it = it.parentElement) {
      const found = rgb(getComputedStyle(it).backgroundColor);
      if (found[3] > 250) return found;
    }
    return [255, 255, 255, 255];
  };
  const pale = [];
  for (const it of document.querySelectorAll("body *")) {
    const texts = [...it.childNodes].filter((node) => node.nodeType === 3);
    const text = texts.map((node) => node.data.trim()).join("");
    if (!text || !it.getClientRects().length) continue;
    const [one, other] = [light(rgb(getComputedStyle(it).color)), light(ground(it))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) pale.push(`${text.slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  return pale;
})()"""

# What is focused, and whether one sees it.
FOCUSED: Final = """(() => {
  const it = document.activeElement, style = getComputedStyle(it), box = it.getBoundingClientRect();
  return { name: it.id || it.getAttribute("aria-labelledby") || it.className || it.tagName,
    ring: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
    seen: box.width > 0 && box.right > 0 && box.bottom > 0 && box.left < innerWidth };
})()"""


async def until(browser: Browser, script: str) -> Any:
    """Wait until an expression in the page is true."""
    with trio.fail_after(20):
        return await browser.until(script)


async def take_part(member: sphtp.Client) -> None:
    """Step in a group in which one member is slower than the others."""
    async with member.join("fluid", size=2, on_death="continue") as group:
        while True:
            if member.name == "bob":
                await trio.sleep(0.005)
            await group.exchange(None)


async def read(member: sphtp.Client, topic: str) -> None:
    """Receive what is published."""
    async with member.subscribe(topic) as messages:
        async for _ in messages:
            pass


async def publish(member: sphtp.Client, topic: str) -> None:
    """Publish ten messages a second."""
    async with member.publish(topic) as source:
        while True:
            await source.send("here")
            await trio.sleep(0.1)


@asynccontextmanager
async def company() -> AsyncIterator[tuple[sphtp.Server, sphtp.Client, sphtp.Client]]:
    """A server, and two clients that step and stream."""
    async with (
        cluster(1) as [one],
        client(one.address, name="ada") as ada,
        client(one.address, name="bob") as bob,
        trio.open_nursery() as nursery,
    ):
        for member in (ada, bob):
            nursery.start_soon(take_part, member)
        nursery.start_soon(publish, ada, "positions")
        nursery.start_soon(read, bob, "positions")
        yield one, ada, bob
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def shown(folder: Path) -> AsyncIterator[tuple[Browser, Web]]:
    """The page of a company in a browser, when it is complete."""
    async with (
        company() as (one, ada, bob),
        open_web(one, ada, bob, page=True) as web,
        open_browser(folder / "browser") as browser,
    ):
        await browser.look(width=1280, height=1000)
        await browser.visit(web.page_url)
        await until(browser, f"{CAUSES}.includes('waits for bob')")
        await until(browser, "document.querySelectorAll('#metrics tbody tr').length > 50")
        await until(browser, "document.querySelector('#flows').textContent.includes('positions')")
        yield browser, web


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """The folder of the pictures."""
    folder = Path(os.environ.get("SPHTP_PICTURES", tmp_path))
    folder.mkdir(exist_ok=True)
    return folder


async def test_it_is_readable_in_light_and_dark_narrow_and_wide(
    tmp_path: Path, pictures: Path
) -> None:
    async with shown(tmp_path) as (browser, web):
        seen = set()
        for dark in (False, True):
            for name, (width, height) in SIZES.items():
                await browser.look(width=width, height=height, dark=dark)
                assert await browser.run(PALE) == []
                # Nothing is wider than the screen.
                assert await browser.run("document.documentElement.scrollWidth <= innerWidth")
                file = pictures / f"{'dark' if dark else 'light'}-{name}.png"
                seen.add(await browser.photograph(file))
        assert len(seen) == 4
        assert browser.complaints == []
        # It shows itself without a network.
        assert {url.startswith(f"{web.url}/") for url in browser.requested} == {True}


async def test_it_says_what_there_is(tmp_path: Path) -> None:
    async with shown(tmp_path) as (browser, _):
        peers = "[...document.querySelectorAll('#peers tbody th')].map((cell) => cell.textContent)"
        assert await browser.run(peers) == ["ada", "bob"]
        title = await browser.run("document.querySelector('h1').textContent")
        assert title == "SphTP 2 peers, 1 server"
        await until(
            browser,
            "/fluid.*2 members.*waits for bob/.test(document.querySelector('#flows').textContent)",
        )
        # A filter finds what it names.
        await browser.run("document.querySelector('#filter').focus()")
        await browser.write("round_trip ada")
        row = "[...document.querySelectorAll('#metrics tbody tr')].map((row) => row.textContent)"
        rows = await browser.run(row)
        assert rows
        assert all("round_trip" in text and "ada" in text for text in rows)
        # The numbers of a server and of this process are there, too.
        for choice, metric in (("server", "sphtp_server_clients"), ("ada", "process_cpu")):
            await browser.run(
                f"""(() => {{
  const box = document.querySelector('#whose'), filter = document.querySelector('#filter');
  filter.value = '{metric}';
  box.value = [...box.options].find((one) => one.textContent.startsWith('{choice}')).value;
  box.dispatchEvent(new Event('change'));
}})()"""
            )
            await until(
                browser,
                "[...document.querySelectorAll('#metrics tbody th')]"
                f".some((cell) => cell.textContent.startsWith('{metric}'))",
            )
        assert browser.complaints == []


async def test_all_of_it_is_reached_by_the_keyboard(tmp_path: Path, pictures: Path) -> None:
    async with shown(tmp_path) as (browser, _):
        order: list[str] = []
        for _ in range(20):
            await browser.press("Tab")
            focused = await browser.run(FOCUSED)
            if focused["name"] in order or focused["name"] == "BODY":
                break
            assert focused["ring"] >= 2, focused
            assert focused["seen"], focused
            order.append(focused["name"])
            if len(order) == 1:
                await browser.photograph(pictures / "skip.png")
        assert order == [
            "skip", "topology", "colour", "h-peers", "h-flows", "whose", "filter",
            "h-metrics",
        ]  # fmt: skip
        # The arrow keys go from peer to peer, whose words a screen reader gets.
        await browser.run("document.querySelector('#topology').focus()")
        for name in ("ada", "bob", "ada"):
            await browser.press("ArrowRight")
            words = await browser.run("document.querySelector('#chosen').textContent")
            assert words.startswith(f"{name}: established; fluid at ")
        # The first link leads to the causes.
        await browser.run("document.querySelector('.skip').focus()")
        await browser.press("Enter")
        assert await until(browser, "location.hash === '#causes' && document.activeElement.id") == (
            "causes"
        )
        assert browser.complaints == []


async def test_a_screen_reader_finds_names_and_roles(tmp_path: Path) -> None:
    async with shown(tmp_path) as (browser, _):
        found = set(await browser.accessible())
        headings = {name for role, name in found if role == "heading"}
        assert headings == {
            "SphTP 2 peers, 1 server", "At a glance", "What is slow, and why", "Topology",
            "Over time", "Peers", "Groups and topics", "Metrics",
        }  # fmt: skip
        assert {
            ("link", "Skip to the causes"), ("searchbox", "Filter"), ("combobox", "Links by"),
            ("combobox", "of"), ("region", "Peers"), ("rowheader", "ada"), ("main", ""),
            ("image", "Peers: 2, servers: 1, links: 1, with losses over 1 %: 0."),
        } <= found  # fmt: skip
        assert [
            name for role, name in found if role in ("image", "button", "region") and not name
        ] == []
        charts = {name.partition(":")[0] for role, name in found if role == "image"}
        assert {"Steps per second", "Loss", "Round trip, median", "Throughput"} <= charts
        live = await browser.run(
            "[...document.querySelectorAll('[aria-live=polite]')].map((one) => one.id)"
        )
        assert live == ["connection", "chosen"]
        # What does not change is not written again, which would be read out each second.
        written = await browser.run(
            """(async () => {
  let count = 0;
  const watch = new MutationObserver((changes) => { count += changes.length; });
  const options = { childList: true, characterData: true, subtree: true };
  for (const id of ["connection", "chosen"]) watch.observe(document.getElementById(id), options);
  const numbers = document.querySelector("#numbers"), before = numbers.dataset.key;
  while (numbers.dataset.key === before) await new Promise((done) => setTimeout(done, 20));
  return count;
})()"""
        )
        assert written == 0
        assert browser.complaints == []


async def test_a_server_that_dies_is_seen_and_the_page_lives_on(
    tmp_path: Path, pictures: Path
) -> None:
    death = trio.CancelScope()
    async with (
        cluster(1) as [first],
        trio.open_nursery() as nursery,
        open_browser(tmp_path / "browser") as browser,
    ):
        second = await nursery.start(kept, server(first.address), death)
        await agreed(first, 2)
        ada = await nursery.start(kept, client(first.address, second.address, name="ada"))
        looker = await nursery.start(kept, client(first.address, second.address, name="looks on"))
        await nursery.start(serve_status, ada)
        async with open_web(page=True) as web:
            port = web.address[1]
            with web.observe_with(looker):
                await browser.look(width=1280, height=1000)
                await browser.visit(web.page_url)
                title = "document.querySelector('h1').textContent"
                await until(browser, f"{title} === 'SphTP 1 peer, 2 servers'")
                await until(browser, f"{CAUSES}.includes('Nothing is slow')")
                death.cancel()
                await until(browser, f"{title} === 'SphTP 1 peer, 1 server'")
                assert await browser.run(LIVE)
                assert browser.complaints == []
        # Now the program that served the page has ended.
        state = "document.querySelector('#connection').dataset.state"
        await until(browser, f"{state} === 'lost'")
        words = await browser.run("document.querySelector('#connection').textContent")
        assert words.startswith("Connection lost. Last seen at ")
        await browser.look(width=1280, height=1000)
        await browser.photograph(pictures / "lost.png")
        # When it is there again, nobody has to do anything.
        async with open_web(page=True, port=port) as web:
            with web.observe_with(looker):
                await until(browser, LIVE)
                await until(browser, f"{title} === 'SphTP 1 peer, 1 server'")
        # The console has what the network said, and no error of the page.
        assert [text for text in browser.complaints if not text.startswith("network: ")] == []
        nursery.cancel_scope.cancel()


async def test_a_token_is_asked_for_and_kept_over_a_reload(tmp_path: Path, pictures: Path) -> None:
    async with (
        company() as (one, ada, bob),
        open_web(one, ada, bob, page=True, host="0.0.0.0", token=TOKEN) as web,
        open_browser(tmp_path / "browser") as browser,
    ):
        here = f"http://127.0.0.1:{web.address[1]}/"
        asked = "document.querySelector('#token-form').hidden === false"
        await browser.look(width=1280, height=1000)
        await browser.visit(here)
        await until(browser, asked)
        assert await browser.run("document.activeElement.id") == "token"
        assert await browser.run("document.querySelector('#peers tbody').rows.length") == 0
        await browser.photograph(pictures / "token.png")
        await browser.write("a token of others")
        await browser.press("Enter")
        await until(browser, f"{asked} && document.activeElement.id === 'token'")
        await browser.run("document.querySelector('#token').value = ''")
        await browser.write(TOKEN)
        await browser.press("Enter")
        await until(browser, f"{LIVE} && document.querySelector('#peers tbody').rows.length === 2")
        await browser.reload()
        await until(browser, f"{LIVE} && document.querySelector('#peers tbody').rows.length === 2")
        # The address that the program prints has the token, which does not stay there.
        await browser.run("sessionStorage.clear()")
        await browser.visit("about:blank")
        await browser.visit(web.page_url.replace("0.0.0.0", "127.0.0.1"))
        await until(browser, LIVE)
        assert await browser.run("location.href") == here
        assert not any(TOKEN[2:7] in url.partition("#")[0] for url in browser.requested)
        refusals = [text for text in browser.complaints if "401" in text]
        assert refusals == browser.complaints
