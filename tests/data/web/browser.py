"""A person in a browser: logs in, starts a run, watches it, approves a call, reads a difference and
applies it, while the server is restarted; finds events, decides by keys, and logs out. axe-core looks at each page, in both colour schemes and
at three widths. Playwright drives a Chromium; its commands go by the debugging protocol, so that the
page's content security policy stays as it is.

Usage: browser.py CHROMIUM AXE URL TOKEN SCREENSHOTS. Writes `restart` when the server is to be
started again, and reads a line when it was. Exits with 3 if there is no Chromium."""

import re
import sys
from pathlib import Path

from playwright.sync_api import Error, Page, expect, sync_playwright

WIDTHS = [360, 1280, 1920]
SCHEMES = ["light", "dark"]


class Story:
    def __init__(self, page: Page, axe: str, url: str, token: str, shots: str) -> None:
        self.page, self.axe, self.url, self.token, self.shots = page, axe, url, token, shots
        self.violations: list[str] = []
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(f"{page.url}: {error}"))
        page.on("console", self.read_console)

    def read_console(self, message) -> None:
        # Also what the content security policy has blocked. A failed request is looked at itself.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(f"{self.page.url}: {message.text}")

    def look(self, name: str) -> None:
        """Lets axe look at the page as it is."""
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            for width in WIDTHS:
                self.page.set_viewport_size({"width": width, "height": 900})
                self.page.evaluate(self.axe)
                found = self.page.evaluate("axe.run(document)")
                for violation in found["violations"]:
                    for node in violation["nodes"]:
                        target = " ".join(map(str, node["target"]))
                        summary = (node.get("failureSummary") or "").replace("\n", " ")
                        self.violations.append(
                            f"{name} ({scheme}, {width}): {violation['id']}: {target}: {summary}"
                        )
                wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
                if self.page.evaluate(wide):
                    self.violations.append(f"{name} ({scheme}, {width}): it scrolls sideways")
                if self.shots:
                    path = Path(self.shots) / f"{name}-{scheme}-{width}.png"
                    self.page.screenshot(path=path, full_page=True)
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size({"width": 1280, "height": 900})

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def play(self) -> None:
        page = self.page
        # Each page asks whoever has no session for a token, and shows itself then.
        self.go("/runs")
        self.look("log-in")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        self.log_in()
        expect(page).to_have_url(self.url + "/runs")
        expect(page.get_by_text("There is no run yet.")).to_be_visible()
        run = self.start()
        # The list is live: the run appears without a reload.
        link = page.locator(f"a[href='/runs/{run}']")
        expect(link.first).to_be_visible()
        self.look("runs")
        link.first.click()
        expect(page.locator("main")).to_contain_text("approval echo.run")
        self.look("run")
        self.restart()
        self.approve()
        self.go(f"/runs/{run}")
        expect(page.get_by_role("heading", level=1)).to_contain_text("done", ignore_case=True)
        expect(page.locator("body")).to_contain_text("it ran")
        self.look("run-done")
        self.find_event()
        for part in ["background", "audit"]:
            self.go(f"/runs/{run}/{part}")
            self.look(part)
        self.apply(run)
        self.decide_by_keys()
        self.go("/")
        expect(page.get_by_role("textbox").first).to_be_visible()
        # The conversations are a place like the others.
        place = page.get_by_role("navigation", name="Pages").get_by_text("Conversations")
        expect(place).to_have_attribute("aria-current", "page")
        self.look("conversation")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()

    def log_in(self) -> None:
        self.page.get_by_label("Token").fill(self.token)
        self.page.get_by_role("button", name="Log in").click()

    def start(self) -> str:
        """Starts a run with the session of the browser."""
        answer = self.page.evaluate(
            """async () => {
                const headers = { "Content-Type": "application/json" };
                const body = JSON.stringify({ text: "Write the report." });
                const answer = await fetch("/api/v1/runs", { method: "POST", headers, body });
                return { status: answer.status, body: await answer.json() };
            }"""
        )
        assert answer["status"] == 201, answer
        return answer["body"]["run"]

    def restart(self) -> None:
        """Has the server killed and started again. The person stays on the page."""
        print("restart", flush=True)
        assert sys.stdin.readline().strip() == "started"

    def approve(self) -> None:
        page = self.page
        self.go("/inbox")
        # Sessions live in the process: after a restart the person logs in again.
        if page.get_by_label("Token").count():
            self.log_in()
            expect(page).to_have_url(self.url + "/inbox")
        expect(page.get_by_text("it ran")).to_be_visible()
        # Within half a second of a change of the list a click counts for nothing, and the buttons are
        # faint.
        expect(page.locator(".moving")).to_have_count(0)
        self.look("inbox")
        expect(page.locator(".moving")).to_have_count(0)
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("status").filter(has_text="approved")).to_be_visible()
        expect(page.get_by_text("Nothing waits for a person.")).to_be_visible()

    def find_event(self) -> None:
        """Opens events by their bars in the waterfall, and by their addresses."""
        page = self.page
        # A bar can be narrower than a pointer.
        page.locator("[data-event].k-tool").first.dispatch_event("click")
        line = page.locator("ol.rows li", has=page.locator("summary:focus"))
        expect(line).to_be_in_viewport()
        expect(line).to_contain_text("tool writer.forge")
        line.get_by_role("link", name="Address of this event").click()
        expect(page).to_have_url(re.compile(r"\?event=(.+)#e\1$"))
        expect(page.locator("li:target details[open]")).to_be_in_viewport()

    def decide_by_keys(self) -> None:
        """Decides without a pointer. What is decided while the list moves is not decided."""
        page = self.page
        for _ in range(2):
            self.start()
        self.go("/inbox")
        questions = page.locator(".questions > li")
        expect(questions).to_have_count(2)
        page.evaluate(
            """() => {
                window.tried = new Promise((resolve) => {
                    document.addEventListener("changed", function tries() {
                        if (document.querySelectorAll(".questions > li").length < 3) return;
                        document.removeEventListener("changed", tries);
                        document.querySelector("form[data-decide=approve]").requestSubmit();
                        resolve();
                    });
                });
            }"""
        )
        self.start()
        page.evaluate("window.tried")
        expect(page.locator(".keys")).to_contain_text("nothing was decided")
        expect(questions).to_have_count(3)
        expect(page.locator(".moving")).to_have_count(0)
        refuse = page.locator(".bulk button")
        expect(refuse).to_be_hidden()
        page.keyboard.press("j")
        expect(questions.first).to_be_focused()
        page.keyboard.press("w")
        expect(questions.first.locator(".why")).to_have_attribute("open", "")
        page.keyboard.press("x")
        questions.nth(1).focus()
        page.keyboard.press("x")
        expect(refuse).to_have_text("Refuse 2 selected")
        self.look("inbox-selected")
        page.get_by_label("Reason for the selected calls").fill("not today")
        refuse.click()
        expect(page.get_by_role("status").filter(has_text="2 calls were refused")).to_be_visible()
        expect(questions).to_have_count(1)
        expect(page.locator(".moving")).to_have_count(0)
        page.keyboard.press("j")
        page.keyboard.press("a")
        expect(page.get_by_role("status").filter(has_text="approved")).to_be_visible()

    def apply(self, run: str) -> None:
        page = self.page
        self.go(f"/runs/{run}/changes")
        expect(page.locator("pre.diff").first).to_be_visible()
        self.look("changes")
        page.get_by_role("button", name="Apply all").click()
        expect(page.get_by_text("No changed file waits.")).to_be_visible()


def main() -> int:
    chromium, axe, url, token, shots = sys.argv[1:]
    with sync_playwright() as playwright:
        try:
            # Tests may run as root, where Chromium has no sandbox of its own.
            options = ["--no-sandbox"]
            browser = playwright.chromium.launch(executable_path=chromium or None, args=options)
        except Error as error:
            print(f"no Chromium: {str(error).splitlines()[0]}", file=sys.stderr)
            return 3
        page = browser.new_page()
        story = Story(page, Path(axe).read_text(encoding="utf-8"), url, token, shots)
        try:
            story.play()
        except Exception:
            print(page.url, page.locator("body").inner_text(), file=sys.stderr)
            raise
        finally:
            for line in story.violations + story.errors:
                print(line, file=sys.stderr)
        browser.close()
    return 1 if story.violations or story.errors else 0


if __name__ == "__main__":
    sys.exit(main())
