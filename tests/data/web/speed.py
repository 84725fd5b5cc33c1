"""How fast the page of a long run is in a headless Chromium: its first view, and its frames while it
scrolls. Prints one JSON object, each row with its value.

Usage: speed.py URL TOKEN RUN. Exits with 3 if there is no Chromium."""

import json
import shutil
import sys

from playwright.sync_api import Error, sync_playwright

# Scrolls for this time, at a pace at which one still reads the kinds of events.
SCROLL_MS = 4000
PIXELS_A_SECOND = 3000

SCROLL = """([time, pace]) => new Promise((resolve) => {
    const long = [];
    new PerformanceObserver((list) => long.push(...list.getEntries().map((it) => it.duration)))
        .observe({ type: "longtask" });
    const frames = [];
    const began = performance.now();
    let last = began;
    function frame(now) {
        frames.push(now - last);
        last = now;
        scrollTo({ top: (now - began) / 1000 * pace, behavior: "instant" });
        if (now - began < time) requestAnimationFrame(frame);
        else resolve({ frames, long });
    }
    requestAnimationFrame(frame);
})"""


def main() -> int:
    url, token, run = sys.argv[1:]
    named = map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])
    with sync_playwright() as playwright:
        try:
            # Tests may run as root, where Chromium has no sandbox of its own.
            browser = playwright.chromium.launch(
                executable_path=next(filter(None, named), None), args=["--no-sandbox"]
            )
        except Error as error:
            print(f"no Chromium: {str(error).splitlines()[0]}", file=sys.stderr)
            return 3
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url + "/runs")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(url + "/runs")
        page.goto(f"{url}/runs/{run}")
        painted = page.evaluate(
            """() => new Promise((resolve) => new PerformanceObserver((list) =>
                resolve(list.getEntriesByName("first-contentful-paint")[0].startTime))
                .observe({ type: "paint", buffered: true }))"""
        )
        page.wait_for_timeout(500)
        seen = page.evaluate(SCROLL, [SCROLL_MS, PIXELS_A_SECOND])
        browser.close()
    frames = sorted(seen["frames"])
    rate = 1000 * len(frames) / sum(frames)
    rows = {
        "the same in Chromium, until it is painted": f"{painted:.0f} ms",
        "frames a second while it scrolls": f"{rate:.0f}",
        "the slowest frame of a hundred": f"{frames[len(frames) * 99 // 100]:.1f} ms",
        "tasks of more than 50 ms meanwhile": str(len(seen["long"])),
    }
    print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
