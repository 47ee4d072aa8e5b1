"""What a person does with the page, each in a tab of its own. A function is a scenario when its name is in `names`."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Locator, Page, expect

from proctor.actors.store.memory import MemoryStore
from tests.browser.browser import World
from tests.browser.far_ends import EDIT, HOSTILE, Agent

TOKEN = "0123456789abcdef+é"


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def shows_the_fleet_and_follows_its_changes(world: World) -> None:
    with world.fleet("a", "b") as (server, _), world.tab(server) as page:
        expect(row(page, "a")).to_contain_text("idle")
        world.post(server, "/agents/a/queue", prompt="hang")
        expect(row(page, "a")).to_contain_text("working")
        expect(row(page, "b")).to_contain_text("idle")
        world.post(server, "/agents/b/stop")
        expect(row(page, "b")).to_contain_text("stopped")


def shows_a_conversation_as_it_streams(world: World) -> None:
    with world.fleet("a") as (server, agents), world.tab(server) as page:
        page.get_by_role("link", name="a", exact=True).click()
        expect(page.get_by_role("heading", name="a", exact=True)).to_be_visible()
        page.get_by_label("Message to a").fill("stream")
        page.get_by_role("button", name="Ask", exact=True).click()
        log = page.get_by_role("log")
        for part, whole in (("One ", "One"), ("two ", "One two"), ("three", "One two three")):
            world.thread.run(agents["a"].say.send, part)
            expect(log.get_by_text(whole, exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="Interrupt")).to_be_visible()
        world.thread.run(agents["a"].say.send, "")
        expect(log).to_contain_text("turn completed")
        expect(page.get_by_role("button", name="Interrupt")).to_be_hidden()


def folds_tools_and_shows_text_as_text(world: World) -> None:
    with world.fleet("a") as (server, _), world.tab(server, "/#/agent/a") as page:
        world.post(server, "/agents/a/turns", prompt="tools")
        log = page.get_by_role("log")
        expect(log.get_by_text(HOSTILE)).to_be_visible()
        expect(log.locator("img")).to_have_count(0)
        output = log.get_by_text("12 passed")
        expect(output).to_be_hidden()
        log.get_by_text("make test").first.click()
        expect(output).to_be_visible()
        log.get_by_text("notes.md").first.click()
        expect(log.locator(".minus")).to_have_text("-half")
        expect(log.locator(".plus")).to_have_text("+whole")


def takes_the_token_in_a_form(world: World) -> None:
    with (
        world.fleet("a", entrance={"token": TOKEN}) as (server, _),
        world.tab(server) as page,
    ):
        field = page.get_by_label("Token of this server")
        expect(field).to_be_focused()
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("The server refused this token.")
        field.fill(TOKEN)
        page.keyboard.press("Enter")
        expect(row(page, "a")).to_contain_text("idle")
        page.reload()
        expect(row(page, "a")).to_contain_text("idle")
    assert [
        request.url for request in world.requests if "token" in request.url or "01234" in request.url
    ] == []


def takes_the_token_of_a_link_out_of_the_address(world: World) -> None:
    token = "0123456789abcdef-_"
    with (
        world.fleet("a", entrance={"token": token}) as (server, _),
        world.tab(server, f"/#token={token}") as page,
    ):
        assert token not in page.url
        expect(row(page, "a")).to_contain_text("idle")
        page.get_by_role("link", name="a", exact=True).click()
        page.go_back()
        expect(row(page, "a")).to_contain_text("idle")
        assert page.evaluate("JSON.stringify([history.length, location.href])").find(token) < 0
        expect(page.get_by_text("live")).to_be_visible()


def asks_no_other_host(world: World) -> None:
    with world.fleet("a") as (server, _), world.tab(server) as page:
        for link in page.get_by_role("navigation").get_by_role("link").all():
            link.click()
        page.get_by_role("link", name="Fleet").click()
        page.get_by_text("The last hours").click()
        expect(page.locator("figure canvas")).to_be_visible()
        page.get_by_role("link", name="a", exact=True).first.click()
        expect(page.get_by_role("log")).to_be_attached()
        own = f"http://{server.where}/"
    assert world.requests
    assert [request.url for request in world.requests if not request.url.startswith(own)] == []


def lists_requests_and_names_prompts(world: World) -> None:
    with (
        world.fleet("a", "b", store=MemoryStore()) as (server, _),
        world.tab(server, "/#/requests") as page,
    ):
        world.post(server, "/agents/a/queue", prompt="the first of all")
        world.post(server, "/agents/b/queue", prompt="hang")
        first = page.get_by_role("row").filter(has_text="the first of all")
        expect(first).to_contain_text("ok")
        expect(page.get_by_role("row").filter(has_text="hang")).to_contain_text("running")
        page.get_by_role("button", name="ended").click()
        expect(page.get_by_role("status").last).to_have_text("1 request")
        first.get_by_role("link", name="a").click()
        expect(page.locator(".prompt")).to_contain_text("the first of all")
        page.reload()
        expect(page.locator(".prompt")).to_contain_text("the first of all")


def replays_a_past_run(world: World) -> None:
    with TemporaryDirectory() as folder:
        with world.fleet("a", record=Path(folder)) as (server, _):
            world.post(server, "/agents/a/turns", prompt="tools")
        with world.fleet("a", record=Path(folder)) as (server, _), world.tab(server, "/#/runs") as page:
            expect(page.get_by_role("status").last).to_have_text("2 runs")
            page.get_by_role("row").filter(has_text="ok").get_by_role("link").click()
            log = page.get_by_role("log")
            expect(log).to_contain_text("turn completed")
            page.get_by_label("Event").fill("0")
            expect(page.get_by_text("Nothing yet.")).to_be_visible()
            page.get_by_role("button", name="25x").click()
            page.get_by_role("button", name="Replay").click()
            expect(log).to_contain_text("turn completed")
            expect(page.get_by_role("button", name="Replay")).to_be_visible()
            expect(log.get_by_text("make test")).to_have_count(2)


def allows_a_tool_from_now_on(world: World) -> None:
    with world.fleet("a") as (server, agents), world.tab(server, "/#/agent/a") as page:
        world.post(server, "/agents/a/queue", prompt="edit")
        page.get_by_role("button", name="1 h more").click()
        expect(page.get_by_role("region", name="May use Edit?")).to_contain_text(
            re.compile(r"59:\d\d|1 h 0 min")
        )
        page.get_by_role("button", name="Always allow").click()
        expect(page.get_by_role("log")).to_contain_text("turn completed")
        [answer] = agents["a"].answers
        assert answer["updatedPermissions"][0]["rules"] == [{"toolName": "Edit"}]


def answers_a_question(world: World) -> None:
    with world.fleet("a") as (server, agents), world.tab(server, width=360, height=740) as page:
        world.post(server, "/agents/a/queue", prompt="choose")
        page.get_by_label("blue").check()
        page.get_by_label("Answer").fill("green, if you have it")
        page.get_by_role("button", name="Answer").click()
        expect(row(page, "a")).to_contain_text("idle")
        [answer] = agents["a"].answers
        assert answer["updatedInput"]["answers"] == {"Which colour?": "green, if you have it"}


def lets_a_tool_run(world: World) -> None:
    with world.fleet("a", "b") as (server, agents), world.tab(server) as page:
        world.post(server, "/agents/a/queue", prompt="edit")
        expect(row(page, "a")).to_contain_text("needs you")
        expect(page.get_by_role("status").first).to_have_text("a needs you: may it use Edit?")
        question = page.get_by_role("region", name="a may use Edit?")
        expect(question.locator(".minus")).to_have_text("-half")
        expect(question.locator(".plus")).to_have_text("+whole")
        question.get_by_role("button", name="Allow", exact=True).click()
        expect(question).to_be_hidden()
        expect(row(page, "a")).to_contain_text("idle")
        [answer] = agents["a"].answers
        assert (answer["behavior"], answer["updatedInput"]) == ("allow", EDIT)


def denies_a_tool_with_a_reason_by_keyboard_alone(world: World) -> None:
    with world.fleet("a") as (server, agents), world.tab(server) as page:
        world.post(server, "/agents/a/queue", prompt="edit")
        expect(page.get_by_role("button", name="Deny")).to_be_visible()
        reason = page.get_by_label("Reason")
        for _ in range(30):
            page.keyboard.press("Tab")
            if reason.evaluate("it => it === document.activeElement"):
                break
        page.keyboard.type("not on a Friday")
        page.keyboard.press("Shift+Tab")
        expect(page.get_by_role("button", name="Deny")).to_be_focused()
        page.keyboard.press("Enter")
        expect(row(page, "a")).to_contain_text("idle")
        [answer] = agents["a"].answers
        assert (answer["behavior"], answer["message"]) == ("deny", "not on a Friday")
        expect(page.get_by_role("main")).to_be_focused()


def follows_a_restart(world: World) -> None:
    with world.fleet("a") as (server, _), world.tab(server, "/#/agent/a") as page:
        log = page.get_by_role("log")
        world.post(server, "/agents/a/turns", prompt="first")
        expect(log).to_contain_text("You asked: first")
        world.post(server, "/agents/a/queue", prompt="crash")
        expect(log).to_contain_text("process ended")
        world.post(server, "/agents/a/turns", prompt="second")
        expect(log).to_contain_text("You asked: second")
        page.get_by_text("About a").click()
        expect(page.get_by_role("main")).to_contain_text("Restarts1: exit status 3")
        page.get_by_role("link", name="Fleet").click()
        expect(row(page, "a").get_by_role("cell").last).to_have_text("1")


def shows_500_agents_and_finds_one_by_keyboard(world: World) -> None:
    with world.storm() as (address, _), world.tab(address) as page:
        expect(page.get_by_text("500 agents")).to_be_visible()
        assert page.get_by_role("row").count() < 80
        page.keyboard.press("/")
        page.keyboard.type("agent-12 idle")
        expect(page.get_by_text("3 of 500 agents")).to_be_visible()
        page.keyboard.press("Control+A")
        page.keyboard.type("499")
        expect(page.get_by_text("1 of 500 agents")).to_be_visible()
        page.keyboard.press("Escape")
        page.get_by_role("link", name="agent-003").focus()
        page.keyboard.press("ArrowDown")
        expect(page.get_by_role("link", name="agent-007")).to_be_focused()
        for _ in range(50):
            page.keyboard.press("ArrowDown")
        expect(page.get_by_role("link", name="agent-207")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="agent-207")).to_be_visible()


def loses_and_regains_the_connection(world: World) -> None:
    agents = {"a": Agent()}
    with world.fleet(agents=agents) as (server, _):
        where = server.where
        opened = world.tab(server)
        page = opened.__enter__()
        expect(page.get_by_text("live")).to_be_visible()
    try:
        expect(page.get_by_text(re.compile("connection lost: .*trying again in"))).to_be_visible()
        expect(page.get_by_role("status").first).to_have_text("connection lost")
        # a long pause: the page is not to be back by itself before the button is pressed
        expect(page.get_by_text(re.compile("trying again in ([5-9]|[0-9]{2}) s"))).to_be_visible()
        with world.fleet(agents={"a": Agent(), "c": Agent()}, where=where) as (server, _):
            page.get_by_role("button", name="Now").click()
            expect(page.get_by_text("live")).to_be_visible()
            expect(row(page, "c")).to_contain_text("idle")
            world.post(server, "/agents/c/queue", prompt="hang")
            expect(row(page, "c")).to_contain_text("working")
    finally:
        opened.__exit__(None, None, None)


def shows_a_late_viewer_what_is_open_and_takes_away_what_another_answers(world: World) -> None:
    with world.fleet("a", "b") as (server, agents):
        world.post(server, "/agents/b/queue", prompt="edit")
        world.until(server, "b", "blocked")
        with world.tab(server) as page:
            question = page.get_by_role("region", name="b may use Edit?")
            expect(question).to_be_visible()
            expect(page).to_have_title(re.compile(r"^\(1\) "))
            expect(page.get_by_role("link", name="1 question for you")).to_be_visible()
            world.post(server, "/agents/b/approvals/q%201", decision="deny", message="no")
            expect(question).to_be_hidden()
            expect(page).not_to_have_title(re.compile(r"^\(1\) "))
        assert len(agents["b"].answers) == 1


def says_that_another_was_faster(world: World) -> None:
    with world.fleet("a") as (server, agents), world.tab(server) as page:
        world.post(server, "/agents/a/queue", prompt="edit")
        allow = page.get_by_role("button", name="Allow", exact=True)
        expect(allow).to_be_visible()
        page.route("**/approvals", lambda route: route.abort())  # it learns nothing of the other's answer
        world.post(server, "/agents/a/approvals/q%201", decision="deny", message="no")
        allow.click()
        expect(page.locator(".notice")).to_contain_text("was answered already")
        page.unroute("**/approvals")
        assert [answer["behavior"] for answer in agents["a"].answers] == ["deny"]


def stops_starts_and_interrupts(world: World) -> None:
    with world.fleet("a") as (server, _), world.tab(server, "/#/agent/a") as page:
        head = page.get_by_role("region", name="Agent")
        world.post(server, "/agents/a/queue", prompt="hang")
        page.get_by_role("button", name="Interrupt").click()
        expect(page.get_by_role("log")).to_contain_text("turn interrupted")
        page.get_by_text("More").click()
        page.get_by_role("button", name="Park").click()
        expect(head).to_contain_text("by the operator: from the page")
        page.get_by_role("button", name="Let it go").click()
        expect(head).not_to_contain_text("by the operator")
        page.get_by_role("button", name="Stop").click()
        expect(head).to_contain_text("idle")  # once is not enough
        page.get_by_role("button", name="Really stop?").click()
        expect(head).to_contain_text("stopped")
        page.get_by_label("Message to a").fill("hello")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("alert")).to_be_visible()  # the host refuses, and says why
        expect(page.get_by_label("Message to a")).to_have_value("hello")
        page.get_by_role("button", name="Start").click()
        expect(head).to_contain_text("idle")
        page.keyboard.press("Tab")
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.get_by_role("log")).to_contain_text("You asked: hello")


def shows_a_tree(world: World) -> None:
    with world.fleet("a", "b") as (server, _), world.tab(server) as page:
        page.get_by_role("button", name="as a tree").click()
        rows = page.get_by_role("table", name="Agents").get_by_role("row")
        expect(rows).to_have_count(4)
        expect(rows.nth(1)).to_contain_text("root")
        expect(row(page, "b")).to_contain_text("idle")
        page.get_by_role("link", name="b", exact=True).click()
        page.go_back()
        expect(page.get_by_role("button", name="as a tree")).to_have_attribute("aria-pressed", "true")


def draws_the_last_hours(world: World) -> None:
    with world.fleet("a", "b") as (server, _), world.tab(server) as page:
        expect(row(page, "a")).to_contain_text("idle")
        world.post(server, "/agents/a/queue", prompt="hang")
        expect(row(page, "a")).to_contain_text("working")
        world.post(server, "/agents/b/queue", prompt="crash")
        expect(row(page, "b").get_by_role("cell").last).to_have_text("1")
        page.get_by_text("The last hours").click()
        expect(page.get_by_role("img", name=re.compile("a: 1 turn, 0 restarts"))).to_be_visible()
        expect(page.get_by_role("img", name=re.compile("b: .*[1-9] restart"))).to_be_visible()
        expect(page.locator("figure canvas")).to_be_visible()
        page.get_by_role("button", name="24 h").click()
        expect(page.get_by_role("list", name="The last 24 hours")).to_be_visible()
        # a page that is opened late shows what was before it
        page.reload()
        page.get_by_text("The last hours").click()
        expect(page.get_by_role("img", name=re.compile("b: .*[1-9] restart"))).to_be_visible()


def stays_fluid_when_500_agents_change_all_the_time(world: World) -> None:
    with world.storm() as (address, storm), world.tab(address) as page:
        expect(page.get_by_text("500 agents")).to_be_visible()
        page.evaluate(
            """() => {
                window.renderings = 0; window.began = performance.now();
                new MutationObserver(() => window.renderings++)
                    .observe(document.querySelector(".rows"), {subtree: true, childList: true, characterData: true});
            }"""
        )
        world.thread.call(storm.blow, 60)
        page.get_by_label("Filter").fill("agent-003")  # a key is shown also in the storm
        expect(page.get_by_text("1 of 500 agents")).to_be_visible()
        expect(row(page, "agent-003")).to_contain_text("round 60")
        renderings, seconds = page.evaluate(
            "() => [window.renderings, (performance.now() - window.began) / 1000]"
        )
        # 30,000 changes: five times a second for the changes, once for the clock, and what the filter has caused
        assert 0 < renderings <= 6 * seconds + 15, (renderings, seconds)
        assert page.get_by_role("row").count() < 80


def fits_a_phone(world: World) -> None:
    with (
        world.fleet("a", "an-agent-with-a-long-name-that-does-not-fit") as (server, agents),
        world.tab(server, width=360, height=740) as page,
    ):
        wide = "document.documentElement.scrollWidth"
        world.post(server, "/agents/a/queue", prompt="edit")
        expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()
        assert page.evaluate(wide) <= 360
        page.get_by_role("link", name="a", exact=True).first.click()
        expect(page.get_by_label("Message to a")).to_be_in_viewport()
        assert page.evaluate(wide) <= 360
        page.get_by_role("button", name="Deny").click()
        expect(page.get_by_role("button", name="Deny")).to_be_hidden()
        assert [answer["behavior"] for answer in agents["a"].answers] == ["deny"]


CONTRAST = """() => {
    const channels = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const light = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const luminance = (text) => { const [r, g, b] = channels(text).map(light); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = (element) => {
        for (; element; element = element.parentElement) {
            const colour = getComputedStyle(element).backgroundColor;
            if (!/, 0\\)$|transparent/.test(colour)) return colour;
        }
        return "rgb(255, 255, 255)";
    };
    const poor = [];
    for (const element of document.querySelectorAll("#app *")) {
        if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
        if (!element.checkVisibility() || element.disabled) continue;
        const [a, b] = [getComputedStyle(element).color, behind(element)].map(luminance).sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) poor.push([element.className, element.textContent, (a + 0.05) / (b + 0.05)]);
    }
    return poor;
}"""


def is_readable_in_the_light_and_in_the_dark(world: World) -> None:
    with world.fleet("a", "b", "c") as (server, _):
        world.post(server, "/agents/a/queue", prompt="edit")
        world.post(server, "/agents/b/queue", prompt="hang")
        world.post(server, "/agents/c/stop")
        backgrounds = set()
        for dark in (False, True):
            with world.tab(server, dark=dark) as page:
                expect(page.get_by_role("button", name="Deny")).to_be_visible()
                assert page.evaluate(CONTRAST) == []
                backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                page.get_by_role("link", name="a", exact=True).first.click()
                expect(page.get_by_role("log")).to_contain_text("may it use Edit?")
                assert page.evaluate(CONTRAST) == []
        assert len(backgrounds) == 2


NAMELESS = """() => [...document.querySelectorAll("button, a, input, textarea, select, summary")].filter((element) => {
    const label = element.labels?.[0]?.textContent ?? element.textContent;
    return !(element.getAttribute("aria-label") ?? label).trim();
}).map((element) => element.outerHTML)"""


def can_be_heard(world: World) -> None:
    with world.fleet("a") as (server, _), world.tab(server) as page:
        world.post(server, "/agents/a/queue", prompt="edit")
        expect(page.get_by_role("button", name="Deny")).to_be_visible()
        for link in ("a", "Requests", "Past runs", "Fleet"):
            page.get_by_role("link", name=link, exact=True).first.click()
            expect(page.get_by_role("main")).to_be_focused()
            for role in ("banner", "navigation", "main"):
                expect(page.get_by_role(role)).to_have_count(1)
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            assert page.evaluate(NAMELESS) == []
        page.reload()
        expect(page.get_by_role("button", name="Deny")).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("main")).to_be_focused()


def begins_the_conversation_anew_with_another_host(world: World) -> None:
    with world.fleet("a") as (server, _):
        where = server.where
        opened = world.tab(server, "/#/agent/a")
        page = opened.__enter__()
        world.post(server, "/agents/a/turns", prompt="of the first host")
        expect(page.get_by_role("log")).to_contain_text("of the first host")
    try:
        with world.fleet("a", where=where) as (server, _):
            world.post(server, "/agents/a/turns", prompt="of the second host")
            world.post(server, "/agents/a/turns", prompt="and more of it")
            expect(page.get_by_role("log")).to_contain_text("of the second host")
            expect(page.get_by_role("log")).not_to_contain_text("of the first host")
    finally:
        opened.__exit__(None, None, None)
