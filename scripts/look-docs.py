#!/usr/bin/env python3
"""Opens every page of the built book in headless Chromium, at the width of a phone and of a desk.

    scripts/look-docs.py target/docs [--pictures DIR]

Fails for a broken link or anchor, a message of an error on the console, a request that fails, and a page that is wider
than the window. Needs playwright (`pip install playwright`) and Debian's chromium.
"""
import argparse
import os
import pathlib
import shutil
import sys
import urllib.parse

from playwright.sync_api import sync_playwright

WIDTHS = (360, 1400)
# What is wider than the window, inside of what does not scroll by itself.
WIDE = """() => document.documentElement.scrollWidth > window.innerWidth
    ? [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > window.innerWidth + 1
        && ![...function*(n) { for (; n; n = n.parentElement) yield n }(e)].some(n =>
            ['auto', 'scroll', 'hidden'].includes(getComputedStyle(n).overflowX) && n !== document.documentElement
            && n !== document.body)).slice(0, 3).map(e => e.outerHTML.slice(0, 120))
    : null"""


def targets(page):
    """Links of a page as (text of the link, path of its file, anchor)."""
    for link in page.eval_on_selector_all("a[href]", "all => all.map(a => a.href)"):
        url = urllib.parse.urlsplit(link)
        if url.scheme == "file":
            yield link, pathlib.Path(urllib.parse.unquote(url.path)), urllib.parse.unquote(url.fragment)


def refused(request):
    """Whether a request failed by itself. What the browser still fetches of a page that it leaves is aborted."""
    return "ERR_ABORTED" not in (request.failure or "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("book", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    arguments = parser.parse_args()
    book = arguments.book.resolve()
    # 404.html is for the root of a server.
    pages = sorted(p for p in book.rglob("*.html") if p.name not in ("404.html", "print.html", "toc.html"))
    faults, wanted, anchors = [], [], {}
    with sync_playwright() as playwright:
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=root)
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900})
            at = []
            page.on("console", lambda message: message.type == "error" and at.append(f"console: {message.text}"))
            page.on("pageerror", lambda error: at.append(f"error: {error}"))
            page.on("requestfailed", lambda request: refused(request) and at.append(f"request: {request.url}"))
            for path in pages:
                at.clear()
                page.goto(path.as_uri())
                name = path.relative_to(book)
                wide = page.evaluate(WIDE)
                if wide is not None:
                    at.append(f"wider than the window: {wide}")
                faults += [f"{name} at {width} px: {fault}" for fault in at]
                if width == WIDTHS[0]:
                    ids = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
                    anchors[path] = set(ids)
                    wanted += [(name, *target) for target in targets(page)]
                if arguments.pictures:
                    picture = arguments.pictures / f"{str(name)[:-5].replace('/', '-')}-{width}.png"
                    picture.parent.mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=picture)
            page.close()
        browser.close()
    for name, link, path, anchor in wanted:
        path = path / "index.html" if path.is_dir() else path
        if not path.exists():
            faults.append(f"{name}: broken link {link}")
        elif anchor and path in anchors and anchor not in anchors[path]:
            faults.append(f"{name}: no such place {link}")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(pages)} pages, {len(wanted)} links, {len(faults)} faults")
    sys.exit(bool(faults) or len(pages) < 10)


main()
